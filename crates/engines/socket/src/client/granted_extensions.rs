//! Extensions that were requested from a wirebench server and the ones it granted.

use wb_netperf_wire::Features;

use super::{remote_answers::RemoteReady, request::StreamRequest};

/// Extensions in effect with one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantedExtensions {
    /// The server is wirebench and grants everything requested.
    pub(super) all: bool,
    /// The server must receive an explicit end message.
    pub(super) end: bool,
    /// Datagrams carry sequence numbers and timestamps.
    pub(super) tags: bool,
    /// One sentence for each request that was not granted.
    pub(super) warnings: Vec<String>,
}

pub(super) fn granted_extensions(
    ask: &StreamRequest<'_>,
    ready: &RemoteReady,
) -> GrantedExtensions {
    let asked = ask.request_extension();
    let granted = ready.extension.unwrap_or_default();
    let has = |feature| granted.features.contains(feature);
    let wants = |feature| asked.features.contains(feature);
    let mut found = GrantedExtensions {
        end: has(Features::EXPLICIT_END),
        tags: has(Features::UDP_TAGGED) && ask.is_tagged(),
        ..GrantedExtensions::default()
    };
    let mut missing = Vec::new();
    let mut miss = |wanted: bool, what: &'static str| {
        if wanted {
            missing.push(what);
        }
    };
    let lacks = |feature| wants(feature) && !has(feature);
    miss(
        lacks(Features::UDP_TAGGED),
        "datagrams carry no numbers and times; loss, order and delay are unknown",
    );
    miss(
        lacks(Features::GRO),
        "it receives datagrams one at a time (no UDP_GRO)",
    );
    miss(
        lacks(Features::ZERO_COPY_RECEIVE),
        "it copies what it receives",
    );
    miss(lacks(Features::MPTCP), "it has no MPTCP; plain TCP is used");
    miss(
        asked.busy_poll_us > 0 && granted.busy_poll_us == 0,
        "it sleeps while waiting for data (no busy polling)",
    );
    miss(
        asked.pacing_rate > 0 && granted.pacing_rate != asked.pacing_rate,
        "it does not pace its sends",
    );
    miss(
        asked.omit_ms > 0 && granted.omit_ms != asked.omit_ms && !ask.job.protocol.connects(),
        "its counts include the omitted time",
    );
    miss(
        asked.count > 0 && ready.extension.is_none(),
        "it does not support this count; this end ends the test",
    );
    found.all = ready.extension.is_some()
        && missing.is_empty()
        && granted.features.contains(asked.features & Features::KNOWN);
    let why = if ready.extension.is_some() {
        "the server does not support all requested options"
    } else if ask.job.control.plain {
        "options that only a wirebench server supports were disabled"
    } else {
        "the server is not wirebench"
    };
    found.warnings = missing
        .into_iter()
        .map(|what| format!("{why}: {what}"))
        .collect();
    // Requests that netperf's own messages can express.
    if ask.omni_avoids().0 && !ready.send_avoid {
        found
            .warnings
            .push("the server copies on send; zero copy was requested".to_owned());
    }
    if ask.omni_avoids().1 && !ready.receive_avoid {
        found
            .warnings
            .push("the server copies on receive; zero copy was requested".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use wb_model::socket::{SocketJob, SocketProtocol};
    use wb_netperf_wire::ResponseExtension;

    use super::*;
    use crate::{
        agreement::StreamLength,
        client::{role::StreamRole, target::DataAddresses},
    };

    fn ask(job: &SocketJob) -> StreamRequest<'_> {
        StreamRequest {
            job,
            role: StreamRole::Up,
            length: StreamLength::Time(std::time::Duration::from_secs(1)),
            ends: DataAddresses {
                server: "127.0.0.1".parse().unwrap(),
                local: "0.0.0.0".parse().unwrap(),
                server_named: false,
                scope: 0,
            },
            server_port: 0,
            client: "0.0.0.0:1".parse().unwrap(),
            reachable: "127.0.0.1".parse().unwrap(),
            send_width: 2,
            receive_width: 0,
            send_size: 100,
        }
    }

    fn tagged() -> SocketJob {
        SocketJob {
            protocol: SocketProtocol::Udp,
            tagged: true,
            ..SocketJob::default()
        }
    }

    #[test]
    fn another_server_grants_nothing_and_that_is_said_once_for_each_wish() {
        let found = granted_extensions(&ask(&tagged()), &RemoteReady::default());
        assert!(!found.all && !found.tags && !found.end);
        assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
        assert!(found.warnings[0].starts_with("the server is not wirebench: datagrams"));
        // Without requests there are no warnings.
        let job = SocketJob::default();
        let found = granted_extensions(&ask(&job), &RemoteReady::default());
        assert_eq!((found.all, found.warnings.len()), (false, 0));
    }

    #[test]
    fn our_server_grants_all_or_it_is_said_what_not() {
        let job = tagged();
        let wanted = ask(&job).request_extension().features;
        let mut ready = RemoteReady {
            extension: Some(ResponseExtension {
                features: wanted,
                ..ResponseExtension::default()
            }),
            ..RemoteReady::default()
        };
        let found = granted_extensions(&ask(&job), &ready);
        assert!(found.all && found.tags && found.end && found.warnings.is_empty());
        ready.extension = Some(ResponseExtension {
            features: wanted.without(Features::UDP_TAGGED),
            ..ResponseExtension::default()
        });
        let found = granted_extensions(&ask(&job), &ready);
        assert!(!found.all && !found.tags && found.end);
        assert!(
            found.warnings[0].contains("does not support all requested options"),
            "{:?}",
            found.warnings
        );
    }
}
