//! All requests. The router and the OpenAPI document are made from this table.

use std::sync::{Arc, LazyLock, OnceLock};

use axum::{
    Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    http::StatusCode,
    middleware,
    response::Response,
    routing::{MethodRouter, delete, get, post, put},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use wb_model::{Plan, Report, Snapshot, fleet::Agent, timeline::Timeline};
use wb_runs::RunMeta;

use crate::{
    access::{self, Access},
    answer::ApiError,
    fleet, guard, host, openapi, otg, page,
    runs::{self, App, typed},
    tokens::Role,
};

/// Makes the schema of a type.
pub(crate) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Contents of a body.
pub(crate) enum Body {
    /// A JSON document.
    Json(Shape),
    /// Another type.
    Of(&'static str),
    /// No body.
    Empty,
}

/// One kind of request.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Its effect, in one sentence.
    pub(crate) about: &'static str,
    /// Parameters of the query.
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) body: Body,
    /// Status and contents of the answer to a request that succeeds.
    pub(crate) answer: (u16, Body),
    /// Another status of such an answer.
    pub(crate) also: Option<u16>,
    /// Statuses of refused requests.
    pub(crate) refusals: &'static [u16],
    /// Headers that have an effect.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// True if the body may also be a plan in TOML.
    pub(crate) takes_toml: bool,
    /// Least role of the client; no role for public requests.
    pub(crate) role: Option<Role>,
    handler: fn() -> MethodRouter<App>,
}

/// A request that needs a role: `read` to get something, else `run`.
const fn route(
    method: &'static str,
    path: &'static str,
    about: &'static str,
    handler: fn() -> MethodRouter<App>,
) -> Route {
    Route {
        method,
        path,
        about,
        query: &[],
        body: Body::Empty,
        answer: (200, Body::Empty),
        also: None,
        refusals: &[],
        headers: &[],
        takes_toml: false,
        role: match method.as_bytes() {
            b"get" => Some(Role::Read),
            _ => Some(Role::Run),
        },
        handler,
    }
}

impl Route {
    const fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    const fn takes(mut self, shape: Shape) -> Self {
        self.body = Body::Json(shape);
        self
    }

    const fn gives(mut self, status: u16, body: Body) -> Self {
        self.answer = (status, body);
        self
    }

    const fn also(mut self, status: u16) -> Self {
        self.also = Some(status);
        self
    }

    const fn headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    const fn takes_toml(mut self) -> Self {
        self.takes_toml = true;
        self
    }

    const fn by(mut self, role: Option<Role>) -> Self {
        self.role = role;
        self
    }

    const fn or(mut self, refusals: &'static [u16]) -> Self {
        self.refusals = refusals;
        self
    }
}

/// All requests.
pub(crate) static ROUTES: [Route; 38] = [
    route("get", "/", "Get the page.", || get(page::index))
        .gives(200, Body::Of("text/html"))
        .by(None),
    route(
        "get",
        "/assets/{name}",
        "Get a script or a style of the page.",
        || get(page::asset),
    )
    .gives(200, Body::Of("text/javascript"))
    .or(&[404])
    .by(None),
    route(
        "get",
        "/history",
        "List the runs, as a page without scripts.",
        || get(page::history),
    )
    .gives(200, Body::Of("text/html")),
    route(
        "post",
        "/api/v1/login",
        "Log a browser in: a token for its page, and a cookie for reading.",
        || post(access::log_in),
    )
    .takes(shape::<access::Login>)
    .gives(200, Body::Json(shape::<access::LoggedIn>))
    .or(&[400, 401, 429])
    .also(204)
    .by(None),
    route("post", "/api/v1/logout", "Log a browser out.", || {
        post(access::log_out)
    })
    .gives(204, Body::Empty)
    .by(None),
    route("get", "/api/v1/session", "Describe the client.", || {
        get(access::session)
    })
    .gives(200, Body::Json(shape::<access::SessionDocument>)),
    route(
        "get",
        "/api/v1/tokens",
        "List the tokens of clients, without their secrets.",
        || get(page::tokens),
    )
    .gives(200, Body::Json(shape::<Vec<page::TokenDocument>>))
    .by(Some(Role::Admin)),
    route("post", "/api/v1/tokens", "Make a token.", || {
        post(page::add_token)
    })
    .takes(shape::<page::NewToken>)
    .gives(201, Body::Json(shape::<page::MadeToken>))
    .or(&[400])
    .by(Some(Role::Admin)),
    route("delete", "/api/v1/tokens/{id}", "Remove a token.", || {
        delete(page::remove_token)
    })
    .gives(204, Body::Empty)
    .or(&[404])
    .by(Some(Role::Admin)),
    route("get", "/api/v1/examples", "List examples of plans.", || {
        get(page::examples)
    })
    .gives(200, Body::Json(shape::<Vec<page::Example>>)),
    route(
        "get",
        "/api/v1/runs/{id}/view",
        "Get the report of a run so far, or the final one, for a page.",
        || get(page::view),
    )
    .gives(200, Body::Json(shape::<page::RunView>))
    .or(&[404]),
    route("get", "/api/v1/host", "Describe the host.", || {
        get(runs::host)
    })
    .gives(200, Body::Json(shape::<host::HostDocument>)),
    route(
        "get",
        "/api/v1/ports",
        "List the interfaces that plans may use.",
        || get(runs::ports),
    )
    .query(&[(
        "doctor",
        "1: with what `wirebench doctor` finds at each interface",
    )])
    .gives(200, Body::Json(shape::<Vec<host::PortDocument>>)),
    route(
        "get",
        "/api/v1/fleet/agents",
        "List the hosts of the fleet that are there, with their ports.",
        || get(fleet::agents),
    )
    .gives(200, Body::Json(shape::<Vec<Agent>>))
    .or(&[404]),
    route(
        "post",
        "/api/v1/fleet/agents/{host}/drain",
        "Let a host refuse new runs, or accept them again.",
        || post(fleet::drain),
    )
    .takes(shape::<fleet::DrainBody>)
    .gives(202, Body::Empty)
    .or(&[400, 404])
    .by(Some(Role::Admin)),
    route(
        "post",
        "/api/v1/plans/check",
        "Check a plan without opening anything.",
        || post(runs::check),
    )
    .takes(shape::<runs::PlanBody>)
    .gives(200, Body::Json(shape::<runs::Checked>))
    .or(&[400, 403, 422])
    .takes_toml(),
    route(
        "post",
        "/api/v1/runs",
        "Start a run (201), or let it wait for its ports (202).",
        || post(runs::start),
    )
    .takes(shape::<runs::NewRun>)
    .gives(201, Body::Json(shape::<RunMeta>))
    .or(&[400, 403, 409, 413, 422, 503, 507])
    .also(202)
    .takes_toml()
    .headers(&[(
        "Idempotency-Key",
        "the same key and body give the same run for an hour",
    )]),
    route(
        "get",
        "/api/v1/runs",
        "List the runs, the newest first.",
        || get(runs::list),
    )
    .query(&[
        ("state", "only runs in this state"),
        ("label", "only runs with this label: `key` or `key=value`"),
        ("before", "only runs older than this one"),
        ("limit", "maximum number (default 50)"),
    ])
    .gives(200, Body::Json(shape::<Vec<RunMeta>>))
    .or(&[400]),
    route("get", "/api/v1/runs/{id}", "Describe a run.", || {
        get(runs::get)
    })
    .gives(200, Body::Json(shape::<runs::RunDocument>))
    .or(&[404]),
    route(
        "delete",
        "/api/v1/runs/{id}",
        "Remove a run that has ended from the history.",
        || delete(runs::remove),
    )
    .gives(204, Body::Empty)
    .by(Some(Role::Admin))
    .or(&[404, 409]),
    route(
        "get",
        "/api/v1/runs/{id}/plan",
        "Get the plan; with Accept: application/toml as TOML.",
        || get(runs::plan),
    )
    .gives(200, Body::Json(shape::<Plan>))
    .or(&[404]),
    route(
        "get",
        "/api/v1/runs/{id}/events",
        "Follow a run by its events: state, snapshot, message, resync, report.",
        || get(runs::events),
    )
    .gives(200, Body::Of("text/event-stream"))
    .or(&[400, 404])
    .headers(&[(
        "Last-Event-ID",
        "number of the last event that the client has",
    )]),
    route(
        "get",
        "/api/v1/runs/{id}/snapshots",
        "Get the figures of a run over time, so far.",
        || get(runs::snapshots),
    )
    .query(&[("from_ns", "only from this time on, in ns since the start")])
    .gives(200, Body::Json(shape::<Timeline>))
    .or(&[400, 404]),
    route(
        "post",
        "/api/v1/runs/{id}/stop",
        "Stop a run (202); one that has ended stays as it is (200).",
        || post(runs::stop),
    )
    .takes(shape::<runs::StopBody>)
    .gives(202, Body::Json(shape::<RunMeta>))
    .or(&[400, 404])
    .also(200),
    route(
        "post",
        "/api/v1/runs/{id}/steer",
        "Change the rate of loads or of a stream.",
        || post(runs::steer),
    )
    .takes(shape::<runs::SteerBody>)
    .gives(202, Body::Json(shape::<RunMeta>))
    .or(&[400, 404, 409]),
    route(
        "get",
        "/api/v1/runs/{id}/report",
        "Get the report as JSON, or by Accept as page, Markdown, CSV, text, JUnit.",
        || get(runs::report),
    )
    .query(&[(
        "format",
        "json, html, markdown, csv, text or junit, instead of Accept",
    )])
    .gives(200, Body::Json(shape::<Report>))
    .or(&[400, 404]),
    route(
        "get",
        "/api/v1/runs/{id}/files",
        "List the files that the captures of a run have written.",
        || get(runs::files),
    )
    .gives(200, Body::Json(shape::<Vec<runs::FileDocument>>))
    .or(&[404]),
    route(
        "get",
        "/api/v1/runs/{id}/files/{name}",
        "Get a file, or ranges of it.",
        || get(runs::file),
    )
    .gives(200, Body::Of("application/octet-stream"))
    .or(&[404, 416]),
    route(
        "get",
        "/api/v1/compare",
        "Compare reports, as a page or by Accept as Markdown, or two benchmarks as JSON.",
        || get(runs::compare),
    )
    .query(&[("runs", "two or more runs: `A,B`")])
    .gives(200, Body::Of("text/html"))
    .or(&[400, 404]),
    route(
        "put",
        "/api/v1/ports/{locator}/owner",
        "Lease a port (its slash is written %2F) for an owner, or extend the lease.",
        || put(runs::own),
    )
    .takes(shape::<runs::LeaseBody>)
    .gives(200, Body::Json(shape::<runs::Lease>))
    .or(&[400, 409]),
    route(
        "delete",
        "/api/v1/ports/{locator}/owner",
        "End a lease.",
        || delete(runs::disown),
    )
    .query(&[("owner", "the owner")])
    .gives(204, Body::Empty)
    .or(&[400, 404]),
    route(
        "get",
        "/api/v1/schemas/plan",
        "Get the JSON schema of plans.",
        schema_of::<Plan>,
    ),
    route(
        "get",
        "/api/v1/schemas/report",
        "Get the JSON schema of reports.",
        schema_of::<Report>,
    ),
    route(
        "get",
        "/api/v1/schemas/snapshot",
        "Get the JSON schema of snapshots.",
        schema_of::<Snapshot>,
    ),
    route(
        "get",
        "/api/v1/openapi.json",
        "Get this description.",
        || get(description),
    )
    .by(None),
    route(
        "get",
        "/metrics",
        "Get the figures of current runs for Prometheus, with the label `run`.",
        || get(runs::metrics),
    )
    .gives(200, Body::Of("text/plain")),
    route("get", "/healthz", "Check that the server lives.", || {
        get(async || "ok\n")
    })
    .gives(200, Body::Of("text/plain"))
    .by(None),
    route(
        "get",
        "/readyz",
        "Check that the server takes new runs.",
        || get(runs::ready),
    )
    .gives(200, Body::Of("text/plain"))
    .or(&[503])
    .by(None),
];

/// Schema of a type. It is made once, because that takes a while.
fn schema_of<T: JsonSchema>() -> MethodRouter<App> {
    let made = Arc::new(OnceLock::<Bytes>::new());
    let make = || Bytes::from(schemars::schema_for!(T).as_value().to_string());
    get(async move || typed("application/json", made.get_or_init(make).clone()))
}

async fn description() -> Response {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| openapi::document().to_string().into());
    typed("application/json", TEXT.clone())
}

/// The router for all requests of a listener.
pub(crate) fn router(app: App, reach: guard::Reach, access: &Access) -> Router {
    let mut router = Router::<App>::new();
    for route in &ROUTES {
        let handler = (route.handler)();
        let required = (access.clone(), route.role);
        let handler = handler.layer(middleware::from_fn_with_state(required, access::require));
        router = router.route(route.path, handler);
    }
    router
        .merge(otg::router(&app.otg, access))
        .fallback(async || ApiError::unknown("path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this method is not known here",
            )
        })
        // Bodies are read, and limited, once the client is known.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(reach, guard::check))
        .with_state(app)
}
