//! Operations of the API, and the paths by which HTTP clients reach them.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, any},
};
use wb_otg::Answer;

use super::{Inner, Otg, OtgError, OtgResult, access, append, delete, update};
use crate::{access::Access, runs::App};

/// An operation of the API. HTTP clients reach it by a method and a path, gRPC clients by its name.
pub(super) struct Operation {
    pub(super) name: &'static str,
    method: Method,
    path: &'static str,
    /// Carries out a request. Its contents are a JSON document.
    pub(super) run: fn(&Arc<Inner>, &[u8]) -> OtgResult<Answer>,
}

/// All operations.
pub(super) static OPERATIONS: [Operation; 11] = [
    Operation {
        name: "GetConfig",
        method: Method::GET,
        path: "/config",
        run: |otg, _| Ok(Answer::Document(otg.state().value.clone())),
    },
    Operation {
        name: "SetConfig",
        method: Method::POST,
        path: "/config",
        run: |otg, body| {
            let config = wb_otg::read_document(body)?;
            otg.set_config(config).map(Answer::Document)
        },
    },
    Operation {
        name: "UpdateConfig",
        method: Method::PATCH,
        path: "/config",
        run: |otg, body| {
            let change = wb_otg::read_update(&wb_otg::read_document(body)?)?;
            let changed = otg.change_flows(|flows| update(flows, &change));
            changed.map(Answer::Document)
        },
    },
    Operation {
        name: "AppendConfig",
        method: Method::PATCH,
        path: "/config/append",
        run: |otg, body| {
            let new = wb_otg::read_append(&wb_otg::read_document(body)?)?;
            let changed = otg.change_flows(|flows| append(flows, new));
            changed.map(Answer::Document)
        },
    },
    Operation {
        name: "DeleteConfig",
        method: Method::PATCH,
        path: "/config/delete",
        run: |otg, body| {
            let names = wb_otg::read_delete(&wb_otg::read_document(body)?)?;
            let changed = otg.change_flows(|flows| delete(flows, &names));
            changed.map(Answer::Document)
        },
    },
    Operation {
        name: "SetControlState",
        method: Method::POST,
        path: "/control/state",
        run: |otg, body| {
            let control = wb_otg::read_control(&wb_otg::read_document(body)?)?;
            otg.control(control).map(Answer::Document)
        },
    },
    Operation {
        name: "SetControlAction",
        method: Method::POST,
        path: "/control/action",
        run: |_, _| Err(OtgError::new(501, "unsupported: actions")),
    },
    Operation {
        name: "GetMetrics",
        method: Method::POST,
        path: "/monitor/metrics",
        run: |otg, body| {
            let request = wb_otg::read_metrics(&wb_otg::read_document(body)?)?;
            otg.metrics(&request)
        },
    },
    Operation {
        name: "GetStates",
        method: Method::POST,
        path: "/monitor/states",
        run: |otg, body| {
            let request = wb_otg::read_states(&wb_otg::read_document(body)?)?;
            otg.states(&request).map(Answer::Document)
        },
    },
    Operation {
        name: "GetCapture",
        method: Method::POST,
        path: "/monitor/capture",
        run: |otg, body| {
            let port = wb_otg::read_capture(&wb_otg::read_document(body)?)?;
            otg.captured(&port).map(Answer::File)
        },
    },
    Operation {
        name: "GetVersion",
        method: Method::GET,
        path: "/capabilities/version",
        run: |_, _| {
            let version = wb_otg::version(env!("CARGO_PKG_VERSION"));
            Ok(Answer::Document(version))
        },
    },
];

/// Paths of versions before 0.12, and others that no version has.
const UNKNOWN: [&str; 3] = ["/control/{*rest}", "/results/{*rest}", "/monitor/{*rest}"];

/// Returns true for a path at which OTG clients expect errors in their form.
pub(crate) fn is_otg(path: &str) -> bool {
    let mut roots = UNKNOWN.iter().filter_map(|path| path.split('{').next());
    OPERATIONS.iter().any(|known| known.path == path) || roots.any(|root| path.starts_with(root))
}

/// The router for OTG clients.
pub(crate) fn router(otg: &Otg, access: &Access) -> Router<App> {
    let mut router = Router::<Otg>::new();
    let mut known: Vec<(&str, MethodRouter<Otg>)> = Vec::new();
    for operation in &OPERATIONS {
        let Ok(method) = MethodFilter::try_from(operation.method.clone()) else {
            continue;
        };
        let handler = async move |State(otg): State<Otg>, body: Bytes| {
            http_answer(otg.carry_out(operation, body).await)
        };
        match known.iter_mut().find(|(path, _)| *path == operation.path) {
            Some((_, handlers)) => *handlers = std::mem::take(handlers).on(method, handler),
            None => known.push((operation.path, MethodRouter::new().on(method, handler))),
        }
    }
    let refused = async || OtgError::new(405, "this method is not known here").into_response();
    let known = known.into_iter();
    let known = known.map(|(path, handlers)| (path, handlers.fallback(refused)));
    let unknown = UNKNOWN.map(|path| (path, any(unknown)));
    for (path, handler) in known.chain(unknown) {
        let clients = (otg.clone(), access.clone());
        let handler = handler.layer(middleware::from_fn_with_state(clients, access::admit));
        router = router.route(path, handler);
    }
    router.with_state(otg.clone())
}

impl Otg {
    /// Carries out an operation outside of the threads that serve requests, because it may wait.
    pub(super) async fn carry_out(
        self,
        operation: &'static Operation,
        body: Bytes,
    ) -> OtgResult<Answer> {
        let done = tokio::task::spawn_blocking(move || (operation.run)(&self.0, &body)).await;
        done.unwrap_or_else(|_| Err(OtgError::internal("a defect of the program")))
    }
}

fn http_answer(answer: OtgResult<Answer>) -> Response {
    match answer {
        Ok(Answer::Document(value)) => Json(value).into_response(),
        Ok(Answer::Text(text)) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (StatusCode::OK, kind, text).into_response()
        }
        Ok(Answer::File(bytes)) => {
            let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
            (StatusCode::OK, kind, bytes).into_response()
        }
        Err(error) => error.into_response(),
    }
}

async fn unknown() -> Response {
    let what = "there is no such path; this server needs clients of API version 0.12 or later";
    OtgError::new(404, what).into_response()
}
