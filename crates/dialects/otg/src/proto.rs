//! Messages of gRPC clients: their contents as the JSON documents that HTTP clients send, and back.
//!
//! The descriptors of all messages are those of the published package (`proto/VERSION`; `scripts/otg-proto`
//! regenerates them).

use std::{cell::Cell, collections::BTreeSet};

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    SerializeOptions, ServiceDescriptor, Value as Field,
    prost::{
        Message as _,
        encoding::{self, WireType},
    },
};
use serde::Deserializer;

use crate::{Answer, Problem, document::MOST_VALUES};

/// Descriptors of the published package: a `FileDescriptorSet`, compressed.
static DESCRIPTORS: &[u8] = include_bytes!("../proto/otg.desc.zst");
/// Upper limit of the size of the descriptors, in bytes.
const MOST_DESCRIPTORS: usize = 4 << 20;
/// Size of the parts of an answer that is sent in parts, in bytes. Clients accept messages of up to 4 MiB.
const PART: usize = 1 << 20;
/// Maximum depth of messages in messages, as of the decoder.
const MOST_DEPTH: usize = 100;
const SERVICE: &str = "otg.Openapi";
/// First word of the names of methods that send requests or answers in parts.
const IN_PARTS: &str = "stream";

/// All methods of the API.
#[derive(Clone, Debug)]
pub struct Proto(ServiceDescriptor);

/// Method of the API.
#[derive(Clone, Debug)]
pub struct ProtoMethod {
    /// Name of the operation: `SetConfig` for the methods `SetConfig` and `streamSetConfig`.
    pub operation: String,
    method: MethodDescriptor,
    /// The only field of the request; none if the request is empty.
    request: Option<FieldDescriptor>,
    /// The only field of the answer.
    answer: FieldDescriptor,
}

/// Request of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtoRequest {
    /// JSON document.
    pub json: Vec<u8>,
    /// Warning about fields that the server does not know.
    pub warning: Option<String>,
}

impl Proto {
    /// Unpacks the descriptors.
    ///
    /// # Errors
    /// Returns the reason if the descriptors in this program are damaged.
    pub fn load() -> Result<Self, String> {
        let bytes = zstd::bulk::decompress(DESCRIPTORS, MOST_DESCRIPTORS);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let pool = DescriptorPool::decode(bytes.as_slice()).map_err(|error| error.to_string())?;
        let service = pool.get_service_by_name(SERVICE);
        service.map(Self).ok_or_else(|| format!("no {SERVICE}"))
    }

    /// The method that a request names by its path: `/otg.Openapi/SetConfig`.
    #[must_use]
    pub fn method(&self, path: &str) -> Option<ProtoMethod> {
        let name = path.strip_prefix('/')?.strip_prefix(SERVICE)?;
        let name = name.strip_prefix('/')?;
        let method = self.named(name)?;
        let operation = name.strip_prefix(IN_PARTS).unwrap_or(name);
        let whole = self.named(operation)?;
        Some(ProtoMethod {
            operation: operation.to_owned(),
            method,
            request: whole.input().fields().next(),
            answer: whole.output().fields().next()?,
        })
    }

    fn named(&self, name: &str) -> Option<MethodDescriptor> {
        self.0.methods().find(|method| method.name() == name)
    }
}

impl ProtoMethod {
    /// Reads a request: one message, or one after another the parts of its contents.
    ///
    /// # Errors
    /// Returns the reason if the messages are not those of this method.
    pub fn request<B: AsRef<[u8]>>(&self, messages: &[B]) -> Result<ProtoRequest, Problem> {
        let Some(request) = &self.request else {
            return Ok(ProtoRequest::default());
        };
        let wrong = |error: &dyn std::fmt::Display| {
            Problem::new("", format!("the request is not valid: {error}"))
        };
        let Kind::Message(kind) = request.kind() else {
            return Err(wrong(&"its field is no message"));
        };
        let input = self.method.input();
        let left = Cell::new(MOST_VALUES as usize);
        let decode = |kind: &MessageDescriptor, bytes: &[u8]| {
            count_values(kind, bytes, &left, MOST_DEPTH)?;
            DynamicMessage::decode(kind.clone(), bytes).map_err(|error| wrong(&error))
        };
        let contents = if self.method.is_client_streaming() {
            let mut whole = Vec::new();
            for message in messages {
                let part = decode(&input, message.as_ref())?;
                let datum = part.get_field_by_name("datum");
                whole.extend_from_slice(
                    datum.as_ref().and_then(|d| d.as_bytes()).map_or(&[], |b| b),
                );
            }
            decode(&kind, &whole)?
        } else {
            let [message] = messages else {
                return Err(wrong(&"it is not one message"));
            };
            let mut message = decode(&input, message.as_ref())?;
            match message.take_field(request) {
                Some(Field::Message(contents)) => contents,
                _ => return Err(Problem::new(request.name(), "is required")),
            }
        };
        let mut unknown = BTreeSet::new();
        add_unknown(&contents, "", &mut unknown);
        let mut json = serde_json::Serializer::new(Vec::new());
        let options = SerializeOptions::new().use_proto_field_name(true);
        let written = contents.serialize_with_options(&mut json, &options);
        written.map_err(|error| wrong(&error))?;
        Ok(ProtoRequest {
            json: json.into_inner(),
            warning: warning(unknown),
        })
    }

    /// The messages of an answer, with a warning if answers of this method have warnings.
    ///
    /// # Errors
    /// Returns the reason if the answer has a field that the messages do not have.
    pub fn answer(&self, answer: &Answer, warning: Option<String>) -> Result<Vec<Vec<u8>>, String> {
        let mut contents = match (answer, self.answer.kind()) {
            (Answer::Document(value), Kind::Message(kind)) => Field::Message(message(kind, value)?),
            (Answer::Text(text), Kind::Message(kind)) => {
                let mut reader = serde_json::Deserializer::from_slice(text);
                Field::Message(message(kind, &mut reader)?)
            }
            (Answer::File(bytes), Kind::Bytes) => Field::Bytes(bytes.clone().into()),
            _ => return Err("the answer is of another kind".to_owned()),
        };
        if let (Field::Message(message), Some(warning)) = (&mut contents, warning)
            && let Some(Field::List(warnings)) = message.get_field_by_name_mut("warnings")
        {
            warnings.push(Field::String(warning));
        }
        if !self.method.is_server_streaming() {
            let mut whole = DynamicMessage::new(self.method.output());
            whole.set_field(&self.answer, contents);
            return Ok(vec![whole.encode_to_vec()]);
        }
        let bytes = match contents {
            Field::Message(message) => message.encode_to_vec(),
            Field::Bytes(bytes) => bytes.into(),
            _ => Vec::new(),
        };
        let parts = bytes.chunks(PART).map(|part| {
            let mut message = DynamicMessage::new(self.method.output());
            message.set_field_by_name("chunk_size", Field::U64(part.len() as u64));
            message.set_field_by_name("datum", Field::Bytes(part.to_vec().into()));
            message.encode_to_vec()
        });
        Ok(parts.collect())
    }
}

/// Counts the values of a message before they take memory: a value of two bytes takes many times as much. Contents that
/// are no message are left to the decoder.
fn count_values(
    kind: &MessageDescriptor,
    mut bytes: &[u8],
    left: &Cell<usize>,
    depth: usize,
) -> Result<(), Problem> {
    let count = |values: usize| {
        let rest = left.get().checked_sub(values);
        left.set(rest.unwrap_or(0));
        let what = || format!("the request has more than {MOST_VALUES} values");
        rest.map(drop).ok_or_else(|| Problem::new("", what()))
    };
    while let Ok((number, wire)) = encoding::decode_key(&mut bytes) {
        count(1)?;
        let skipped = match wire {
            WireType::Varint => {
                let end = bytes.iter().position(|byte| byte & 0x80 == 0);
                end.map(|end| end + 1)
            }
            WireType::SixtyFourBit => Some(8),
            WireType::ThirtyTwoBit => Some(4),
            // The fields of a group follow one by one.
            WireType::StartGroup | WireType::EndGroup => Some(0),
            WireType::LengthDelimited => {
                let len = encoding::decode_varint(&mut bytes).ok();
                len.and_then(|len| usize::try_from(len).ok())
            }
        };
        let Some(content) = skipped.and_then(|len| bytes.get(..len)) else {
            break;
        };
        bytes = &bytes[content.len()..];
        let field = kind.get_field(number);
        let Some(field) = field.filter(|_| wire == WireType::LengthDelimited) else {
            continue;
        };
        match field.kind() {
            Kind::Message(inner) if depth > 0 => count_values(&inner, content, left, depth - 1)?,
            Kind::Message(_) | Kind::String | Kind::Bytes => {}
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => count(content.len() / 8)?,
            Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => count(content.len() / 4)?,
            // Numbers of a list, each of which ends with a byte below 128.
            _ => count(content.iter().filter(|byte| **byte < 0x80).count())?,
        }
    }
    Ok(())
}

fn message<'d>(
    kind: MessageDescriptor,
    document: impl Deserializer<'d, Error = serde_json::Error>,
) -> Result<DynamicMessage, String> {
    DynamicMessage::deserialize(kind, document).map_err(|error| error.to_string())
}

/// Adds the fields of a message and of those inside that this server does not know, with their places.
fn add_unknown(message: &DynamicMessage, place: &str, unknown: &mut BTreeSet<String>) {
    let own = message.unknown_fields();
    unknown.extend(own.map(|field| format!("{place}{}", field.number())));
    for (field, value) in message.fields() {
        let inner: &[Field] = match value {
            Field::Message(_) => std::slice::from_ref(value),
            Field::List(list) => list,
            _ => &[],
        };
        let inner: Vec<&DynamicMessage> = inner.iter().filter_map(Field::as_message).collect();
        if !inner.is_empty() {
            let place = format!("{place}{}.", field.name());
            inner
                .iter()
                .for_each(|message| add_unknown(message, &place, unknown));
        }
    }
}

fn warning(unknown: BTreeSet<String>) -> Option<String> {
    let numbers: Vec<String> = unknown.into_iter().collect();
    let numbers = numbers.join(", ");
    (!numbers.is_empty())
        .then(|| format!("fields of a later version are ignored, by their numbers: {numbers}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Config, read_document};

    fn encoded(name: &str, value: &Value) -> Vec<u8> {
        let pool = proto().0.parent_pool().clone();
        let kind = pool.get_message_by_name(&format!("otg.{name}")).unwrap();
        message(kind, value).unwrap().encode_to_vec()
    }

    fn decoded(name: &str, bytes: &[u8]) -> Value {
        let pool = proto().0.parent_pool().clone();
        let kind = pool.get_message_by_name(&format!("otg.{name}")).unwrap();
        let message = DynamicMessage::decode(kind, bytes).unwrap();
        let options = SerializeOptions::new().use_proto_field_name(true);
        let value = message.serialize_with_options(serde_json::value::Serializer, &options);
        value.unwrap()
    }

    fn proto() -> &'static Proto {
        static PROTO: std::sync::LazyLock<Proto> =
            std::sync::LazyLock::new(|| Proto::load().unwrap());
        &PROTO
    }

    fn method(name: &str) -> ProtoMethod {
        proto().method(&format!("/otg.Openapi/{name}")).unwrap()
    }

    /// Reads a request as JSON, sent as one message and, if the method has them, in parts.
    fn request(operation: &str, wrapper: &str, field: &str, kind: &str, value: &Value) -> Value {
        let whole = encoded(wrapper, &json!({ field: value }));
        let one = method(operation).request(&[whole]).unwrap();
        if let Some(in_parts) = proto().method(&format!("/otg.Openapi/stream{operation}"))
            && in_parts.method.is_client_streaming()
        {
            let contents = encoded(kind, value);
            let parts = contents.chunks(7).map(|part| {
                let datum = base64(part);
                encoded("Data", &json!({ "chunk_size": part.len(), "datum": datum }))
            });
            let parts: Vec<_> = parts.collect();
            assert_eq!(in_parts.request(&parts).unwrap(), one);
        }
        assert_eq!(one.warning, None);
        read_document(&one.json).unwrap()
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let groups = bytes.chunks(3).map(|group| {
            let get = |n| u32::from(group.get(n).copied().unwrap_or(0));
            let bits = get(0) << 16 | get(1) << 8 | get(2);
            let digit = |n: usize| match n <= group.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]),
                false => '=',
            };
            (0..4).map(digit).collect::<String>()
        });
        groups.collect()
    }

    #[test]
    fn requests_are_the_documents_of_http_clients() {
        let config = json!({
            "ports": [{"name": "tx", "location": "a0"}, {"name": "rx", "location": "b0"}],
            "captures": [{"name": "cap", "port_names": ["rx"], "format": "pcap", "overwrite": true}],
            "flows": [{"name": "f",
                "tx_rx": {"choice": "port", "port": {"tx_name": "tx", "rx_names": ["rx"]}},
                "packet": [
                    {"choice": "ethernet", "ethernet": {"src": {"choice": "value", "value": "02:00:00:00:00:01"}}},
                    {"choice": "ipv4", "ipv4": {"src": {"choice": "increment", "increment": {"start": "198.18.1.2", "step": "0.0.0.1", "count": 50}}}},
                    {"choice": "udp", "udp": {"dst_port": {"choice": "values", "values": [7, 9, 19]}}}],
                "size": {"choice": "fixed", "fixed": 256},
                "rate": {"choice": "percentage", "percentage": 33.3},
                "duration": {"choice": "fixed_seconds", "fixed_seconds": {"seconds": 0.1, "gap": 12}},
                "metrics": {"enable": true, "loss": false, "latency": {"enable": true, "mode": "cut_through"}}}],
        });
        let read = request("SetConfig", "SetConfigRequest", "config", "Config", &config);
        assert_eq!(read, config);
        let count = |value: &Value| {
            let config = Config::read(value, &|_| Some(1_000_000_000), 1).unwrap();
            config.flows[0].count
        };
        assert_eq!(count(&read), count(&config));
        let control = json!({"choice": "traffic", "traffic": {"choice": "flow_transmit",
            "flow_transmit": {"state": "start", "flow_names": ["f"]}}});
        let read = request(
            "SetControlState",
            "SetControlStateRequest",
            "control_state",
            "ControlState",
            &control,
        );
        assert_eq!(read, control);
        let metrics =
            json!({"choice": "flow", "flow": {"flow_names": ["f"], "metric_names": ["frames_tx"]}});
        let read = request(
            "GetMetrics",
            "GetMetricsRequest",
            "metrics_request",
            "MetricsRequest",
            &metrics,
        );
        assert_eq!(read, metrics);
    }

    #[test]
    fn requests_that_are_not_those_of_a_method_are_refused() {
        let set = method("SetConfig");
        assert!(set.request::<&[u8]>(&[]).is_err());
        assert!(set.request(&[[0xff; 5]]).is_err());
        let error = set.request(&[[]]).unwrap_err();
        assert_eq!(error.to_string(), "config: is required");
        assert_eq!(
            method("GetConfig").request(&[[]]),
            Ok(ProtoRequest::default())
        );
        for path in [
            "",
            "/otg.Openapi/",
            "/otg.Openapi/stream",
            "/other/SetConfig",
            "/otg.Openapi/setConfig",
        ] {
            assert!(proto().method(path).is_none(), "{path}");
        }
    }

    #[test]
    fn requests_of_too_many_values_are_refused_before_they_take_memory() {
        let most = MOST_VALUES as usize;
        let wrap = |content: &[u8]| {
            let mut whole = vec![0x0a];
            encoding::encode_varint(content.len() as u64, &mut whole);
            whole.extend_from_slice(content);
            whole
        };
        let refused = |name: &str, messages: &[Vec<u8>]| {
            let error = method(name).request(messages).unwrap_err().to_string();
            assert_eq!(error, "the request has more than 2000000 values");
        };
        // Empty ports, and empty fields of a later version.
        refused("SetConfig", &[wrap(&[0x0a, 0].repeat(most))]);
        refused("SetConfig", &[wrap(&[0xc2, 0x3e, 0].repeat(most))]);
        // Parts of a request, and numbers of a list.
        let part = [0xc2, 0x3e, 0].repeat(most / 2);
        refused("streamSetConfig", &[part.clone(), part.clone(), part]);
        let values = json!({"flows": [{"name": "f", "tx_rx": {}, "packet": [{"udp": {"dst_port": {"values": [5, 5, 5, 5, 5, 5, 5, 5, 5]}}}]}]});
        let whole = encoded("SetConfigRequest", &json!({ "config": values }));
        let left = Cell::new(23);
        let kind = method("SetConfig").method.input();
        count_values(&kind, &whole, &left, MOST_DEPTH).unwrap();
        let used = 23 - left.get();
        left.set(used - 1);
        assert!(count_values(&kind, &whole, &left, MOST_DEPTH).is_err());
        assert!(used > 9 + 7, "{used}");
        // Contents that are no message are left to the decoder.
        left.set(9);
        count_values(&kind, &[0x0a, 200, 1, 1], &left, MOST_DEPTH).unwrap();
        count_values(&kind, &[0xff; 20], &left, MOST_DEPTH).unwrap();
    }

    #[test]
    fn fields_of_later_versions_are_named() {
        // Field 1000 of the configuration, and field 1001 of its first port.
        let port = [0x0a, 1, b'p', 0xc8, 0x3e, 1];
        let mut config = vec![0x0a, 6];
        config.extend(port);
        config.extend([0xc0, 0x3e, 1]);
        let mut whole = vec![0x0a, u8::try_from(config.len()).unwrap()];
        whole.extend(config);
        let set = method("SetConfig");
        let warning = set.request(&[whole]).unwrap().warning.unwrap();
        assert!(warning.ends_with("1000, ports.1001"), "{warning}");
        let answer = set.answer(&Answer::Document(json!({})), Some(warning.clone()));
        let answer = decoded("SetConfigResponse", &answer.unwrap()[0]);
        assert_eq!(answer, json!({"warning": {"warnings": [warning]}}));
    }

    #[test]
    fn answers_are_messages_and_in_parts() {
        let none = method("SetConfig").answer(&Answer::Document(json!({})), None);
        assert_eq!(
            decoded("SetConfigResponse", &none.unwrap()[0]),
            json!({"warning": {}})
        );
        let row = json!({"name": "f", "transmit": "stopped", "frames_tx": "4000", "loss": 0.5});
        let metrics = json!({"choice": "flow_metrics", "flow_metrics": [row]});
        let document = Answer::Text(metrics.to_string().into_bytes());
        let whole = method("GetMetrics").answer(&document, None).unwrap();
        let whole = decoded("GetMetricsResponse", &whole[0]);
        assert_eq!(whole["metrics_response"], metrics);
        let parts = method("streamGetMetrics").answer(&document, None).unwrap();
        let part = decoded("Data", &parts[0]);
        let contents = base64(&encoded("MetricsResponse", &metrics));
        assert_eq!((parts.len(), &part["datum"]), (1, &json!(contents)));

        let file = Answer::File(vec![7; 2 * PART + 5]);
        let whole = method("GetCapture").answer(&file, None).unwrap();
        assert_eq!(whole[0].len(), 2 * PART + 5 + 5);
        let parts = method("streamGetCapture").answer(&file, None).unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!(decoded("Data", &parts[2])["chunk_size"], "5");
        let wrong = Answer::Document(json!({"colour": "red"}));
        assert!(
            method("GetMetrics")
                .answer(&wrong, None)
                .unwrap_err()
                .contains("colour")
        );
        assert!(method("GetMetrics").answer(&file, None).is_err());
    }

    /// Names of the fields of a message, without `choice`.
    fn fields(name: &str) -> BTreeSet<String> {
        let pool = proto().0.parent_pool();
        let kind = pool.get_message_by_name(&format!("otg.{name}")).unwrap();
        let names = kind.fields().map(|field| field.name().to_owned());
        names.filter(|name| name != "choice").collect()
    }

    /// Names of the values of an enumeration.
    fn values(name: &str) -> BTreeSet<String> {
        let pool = proto().0.parent_pool();
        let kind = pool.get_enum_by_name(&format!("otg.{name}.Enum")).unwrap();
        let names = kind.values().map(|value| value.name().to_owned());
        names.filter(|name| name != "unspecified").collect()
    }

    #[test]
    fn names_are_those_of_the_schema() {
        let set = |names: &[&str]| {
            names
                .iter()
                .map(|n| (*n).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let headers = [&crate::packet::SUPPORTED[..], &crate::packet::UNSUPPORTED].concat();
        assert_eq!(set(&headers), fields("FlowHeader"));
        assert_eq!(set(&crate::flow::RATES), fields("FlowRate"));
        assert_eq!(set(&crate::flow::SIZES), fields("FlowSize"));
        assert_eq!(set(&crate::flow::DURATIONS), fields("FlowDuration"));
        assert_eq!(set(&crate::flow::PAYLOADS), values("FlowPayload.Choice"));
        assert_eq!(
            set(&crate::device::CONNECTIONS),
            fields("EthernetConnection")
        );
        let columns = set(&crate::request::PORT_COLUMNS);
        assert_eq!(columns, values("PortMetricsRequest.ColumnNames"));
        let columns = set(&crate::request::FLOW_COLUMNS);
        assert!(columns.is_superset(&values("FlowMetricsRequest.MetricNames")));
        assert!(columns.is_subset(&fields("FlowMetric")));
        let speeds: Vec<&str> = crate::config::SPEEDS
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert!(set(&speeds).is_superset(&values("Layer1.Speed")));
    }
}
