//! gRPC clients: the same operations as those of HTTP clients, over HTTP/2 with or without encryption.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use bytes::{Buf as _, BufMut as _, Bytes};
use serde_json::Value;
use tonic::{
    Code, Status, Streaming,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::Grpc,
};
use wb_otg::{Answer, Proto, ProtoMethod};

use super::{Otg, OtgError, OtgResult, access, routes::OPERATIONS};
use crate::access::{Access, MOST_BODY, read_body};

/// Content types of requests.
const GRPC: [&str; 2] = ["application/grpc", "application/grpc+proto"];
/// Maximum number of messages of a request. Clients send parts of 4 MiB.
const MOST_MESSAGES: usize = 65_536;
/// Maximum length of the errors in a status, in bytes. They are sent in a header field, and clients limit these.
const MOST_ERRORS: usize = 2000;

#[derive(Clone)]
struct Service {
    otg: Otg,
    proto: Arc<Proto>,
}

/// The router for gRPC clients.
///
/// # Errors
/// Returns the reason if the descriptors in this program are damaged.
pub(crate) fn router(otg: &Otg, access: &Access) -> Result<Router, String> {
    let service = Service {
        otg: otg.clone(),
        proto: Arc::new(Proto::load()?),
    };
    let clients = (otg.clone(), access.clone());
    let admission = middleware::from_fn_with_state(clients, admit);
    let router = Router::new().fallback(call).layer(admission);
    Ok(router.with_state(service))
}

/// Lets requests of OTG clients pass.
async fn admit(
    State((otg, access)): State<(Otg, Access)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(error) = access::check(&otg.0.open, &access, &parts, &GRPC) {
        return status(&error).into_http();
    }
    match read_body(body, MOST_BODY).await {
        Ok((body, _turn)) => next.run(Request::from_parts(parts, body)).await,
        Err(_) => Status::resource_exhausted("the request is too large or too slow").into_http(),
    }
}

async fn call(State(service): State<Service>, request: Request) -> Response {
    let Some(method) = service.proto.method(request.uri().path()) else {
        return Status::unimplemented("this method is not known here").into_http();
    };
    let method = Arc::new(method);
    // All methods are served as those with several messages in both directions: the bytes are the same.
    let served = tower::service_fn(|request: tonic::Request<Streaming<Bytes>>| {
        carry_out(service.otg.clone(), Arc::clone(&method), request)
    });
    let mut server = Grpc::new(Raw).max_decoding_message_size(MOST_BODY);
    server.streaming(served, request).await.map(Body::new)
}

type Messages = tokio_stream::Iter<std::vec::IntoIter<Result<Bytes, Status>>>;

/// Carries out a request.
async fn carry_out(
    otg: Otg,
    method: Arc<ProtoMethod>,
    request: tonic::Request<Streaming<Bytes>>,
) -> Result<tonic::Response<Messages>, Status> {
    let mut stream = request.into_inner();
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await? {
        if messages.len() >= MOST_MESSAGES {
            let what = format!("out of range: a request has at most {MOST_MESSAGES} messages");
            return Err(status(&OtgError::new(400, what)));
        }
        messages.push(message);
    }
    let answered = answer(otg, &method, &messages).await;
    let answered = answered.map_err(|error| status(&error))?;
    let answered: Vec<_> = answered.into_iter().map(|m| Ok(Bytes::from(m))).collect();
    Ok(tonic::Response::new(tokio_stream::iter(answered)))
}

async fn answer(otg: Otg, method: &ProtoMethod, messages: &[Bytes]) -> OtgResult<Vec<Vec<u8>>> {
    let unknown = || OtgError::new(501, format!("unsupported: {}", method.operation));
    let mut operations = OPERATIONS.iter();
    let operation = operations.find(|known| known.name == method.operation);
    let operation = operation.ok_or_else(unknown)?;
    let request = method.request(messages)?;
    let answer: Answer = otg.carry_out(operation, request.json.into()).await?;
    let messages = method.answer(&answer, request.warning);
    messages.map_err(OtgError::internal)
}

/// The status of an error. Its message is the error document, which clients read.
fn status(error: &OtgError) -> Status {
    let code = match error.code {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        409 => Code::FailedPrecondition,
        501 => Code::Unimplemented,
        503 => Code::Unavailable,
        500 => Code::Internal,
        _ => Code::InvalidArgument,
    };
    let mut document = error.body.clone();
    if let Some(errors) = document["errors"].as_array_mut() {
        shorten(errors);
    }
    Status::new(code, document.to_string())
}

/// Removes errors that have no room in a status.
fn shorten(errors: &mut Vec<Value>) {
    let (all, first) = (errors.len(), errors.first().cloned());
    let mut room = MOST_ERRORS;
    errors.retain(|error| {
        let len = error.as_str().map_or(0, str::len);
        let rest = room.checked_sub(len);
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    if errors.is_empty() {
        let first = first.as_ref().and_then(Value::as_str).unwrap_or_default();
        let start: String = first.chars().take(MOST_ERRORS / 4).collect();
        errors.push(format!("{start} …").into());
    }
    if errors.len() < all {
        let left = all - errors.len();
        errors.push(format!("{left} further errors").into());
    }
}

/// Passes messages on as bytes.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors_of(count: usize, len: usize) -> Vec<Value> {
        let error = OtgError {
            code: 400,
            body: json!({ "code": 400, "errors": vec!["x".repeat(len); count] }),
        };
        let status = status(&error);
        assert_eq!(status.code(), Code::InvalidArgument);
        let document: Value = serde_json::from_str(status.message()).unwrap();
        assert_eq!(document["code"], 400);
        document["errors"].as_array().unwrap().clone()
    }

    #[test]
    fn errors_fit_in_a_header_field() {
        assert_eq!(errors_of(2, 100).len(), 2);
        let many = errors_of(5000, 100);
        assert_eq!((many.len(), &many[20]), (21, &json!("4980 further errors")));
        let long = errors_of(1, 100_000);
        assert!(long.len() == 1 && long[0].as_str().unwrap().len() < MOST_ERRORS);
    }
}
