//! Requests of the API.

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get, patch, post},
};
use serde_json::Value;

use super::{Inner, Otg, OtgError, OtgResult, access, append, delete, update};
use crate::{access::Access, runs::App};

/// A request: its path, and what it does.
struct OtgRoute {
    path: &'static str,
    handler: fn() -> MethodRouter<Otg>,
}

/// All requests.
static ROUTES: [OtgRoute; 9] = [
    OtgRoute {
        path: "/config",
        handler: || {
            get(async |otg: State<Otg>| answer(otg, |otg| Ok(otg.state().value.clone())).await)
                .post(async |otg: State<Otg>, body: Bytes| {
                    answer(otg, move |otg| otg.set_config(document(&body)?)).await
                })
                .patch(async |otg: State<Otg>, body: Bytes| {
                    answer(otg, move |otg| {
                        let change = wb_otg::read_update(&document(&body)?)?;
                        otg.change_flows(|flows| update(flows, &change))
                    })
                    .await
                })
        },
    },
    OtgRoute {
        path: "/config/append",
        handler: || {
            patch(async |otg: State<Otg>, body: Bytes| {
                answer(otg, move |otg| {
                    let new = wb_otg::read_append(&document(&body)?)?;
                    otg.change_flows(|flows| append(flows, new))
                })
                .await
            })
        },
    },
    OtgRoute {
        path: "/config/delete",
        handler: || {
            patch(async |otg: State<Otg>, body: Bytes| {
                answer(otg, move |otg| {
                    let names = wb_otg::read_delete(&document(&body)?)?;
                    otg.change_flows(|flows| delete(flows, &names))
                })
                .await
            })
        },
    },
    OtgRoute {
        path: "/control/state",
        handler: || {
            post(async |otg: State<Otg>, body: Bytes| {
                answer(otg, move |otg| {
                    otg.control(wb_otg::read_control(&document(&body)?)?)
                })
                .await
            })
        },
    },
    OtgRoute {
        path: "/control/action",
        handler: || post(async || OtgError::new(501, "unsupported: actions").into_response()),
    },
    OtgRoute {
        path: "/monitor/metrics",
        handler: || {
            post(async |otg: State<Otg>, body: Bytes| {
                answer(otg, move |otg| {
                    otg.metrics(&wb_otg::read_metrics(&document(&body)?)?)
                })
                .await
            })
        },
    },
    OtgRoute {
        path: "/monitor/states",
        handler: || {
            post(async |otg: State<Otg>, body: Bytes| {
                answer(otg, move |otg| {
                    otg.states(&wb_otg::read_states(&document(&body)?)?)
                })
                .await
            })
        },
    },
    OtgRoute {
        path: "/monitor/capture",
        handler: || post(capture),
    },
    OtgRoute {
        path: "/capabilities/version",
        handler: || get(async || Json(wb_otg::version(env!("CARGO_PKG_VERSION")))),
    },
];

/// Paths of versions before 0.12, and others that no version has.
const UNKNOWN: [&str; 3] = ["/control/{*rest}", "/results/{*rest}", "/monitor/{*rest}"];

/// The router for OTG clients.
pub(crate) fn router(otg: &Otg, access: &Access) -> Router<App> {
    let mut router = Router::<Otg>::new();
    let known = ROUTES.iter().map(|route| {
        let refused = async || OtgError::new(405, "this method is not known here").into_response();
        (route.path, (route.handler)().fallback(refused))
    });
    let unknown = UNKNOWN.map(|path| (path, any(unknown)));
    for (path, handler) in known.chain(unknown) {
        let clients = (otg.clone(), access.clone());
        let handler = handler.layer(middleware::from_fn_with_state(clients, access::admit));
        router = router.route(path, handler);
    }
    router.with_state(otg.clone())
}

fn document(body: &Bytes) -> OtgResult<Value> {
    let error = |e: serde_json::Error| OtgError::new(400, format!("the body is not JSON: {e}"));
    serde_json::from_slice(body).map_err(error)
}

/// Does work that waits, outside of the threads that serve requests.
async fn blocking<T: Send + 'static>(
    State(otg): State<Otg>,
    work: impl FnOnce(&Inner) -> OtgResult<T> + Send + 'static,
) -> OtgResult<T> {
    let done = tokio::task::spawn_blocking(move || work(&otg.0)).await;
    done.unwrap_or_else(|_| Err(OtgError::internal("a defect of the program")))
}

async fn answer(
    otg: State<Otg>,
    work: impl FnOnce(&Inner) -> OtgResult<Value> + Send + 'static,
) -> Response {
    match blocking(otg, work).await {
        Ok(value) => Json(value).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn capture(otg: State<Otg>, body: Bytes) -> Response {
    let file = blocking(otg, move |otg| {
        otg.captured(&wb_otg::read_capture(&document(&body)?)?)
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    match file.await {
        Ok(bytes) => (StatusCode::OK, kind, bytes).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn unknown() -> Response {
    let what = "there is no such path; this server needs clients of API version 0.12 or later";
    OtgError::new(404, what).into_response()
}
