//! The page for browsers: its files, and the requests that only it needs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Path, State, rejection::BytesRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wb_render::report as pages;
use wb_runs::{Run, RunMeta};

use crate::{
    access::Ticket,
    answer::{ApiError, ApiResult, blocking},
    runs::{App, RunId, parsed, typed},
    tokens::{Role, TokenEntry, lifetime},
};

/// Scripts and styles come from this server only, and no other page can show this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SCRIPT: &str = "text/javascript";
const STYLE: &str = "text/css";

const INDEX: &str = include_str!("../assets/index.html");

/// Files of the page: name, type and text.
const ASSETS: [(&str, &str, &str); 18] = [
    ("access.js", SCRIPT, include_str!("../assets/access.js")),
    ("api.js", SCRIPT, include_str!("../assets/api.js")),
    ("app.css", STYLE, include_str!("../assets/app.css")),
    ("app.js", SCRIPT, include_str!("../assets/app.js")),
    ("bench.js", SCRIPT, include_str!("../assets/bench.js")),
    ("dom.js", SCRIPT, include_str!("../assets/dom.js")),
    ("format.js", SCRIPT, include_str!("../assets/format.js")),
    ("hosts.js", SCRIPT, include_str!("../assets/hosts.js")),
    ("new.js", SCRIPT, include_str!("../assets/new.js")),
    (
        "plan-form.js",
        SCRIPT,
        include_str!("../assets/plan-form.js"),
    ),
    ("plots.js", SCRIPT, pages::PLOTS),
    ("ports.js", SCRIPT, include_str!("../assets/ports.js")),
    ("run.js", SCRIPT, include_str!("../assets/run.js")),
    ("runs.js", SCRIPT, include_str!("../assets/runs.js")),
    ("theme.js", SCRIPT, include_str!("../assets/theme.js")),
    ("report.css", STYLE, pages::STYLE),
    ("uplot.css", STYLE, pages::UPLOT_STYLE),
    ("uplot.js", SCRIPT, pages::UPLOT),
];

/// Examples of plans: name and text. The first comment of each says what it shows.
const EXAMPLES: [(&str, &str); 5] = [
    ("pair", include_str!("../../../../examples/pair.toml")),
    (
        "bidirectional",
        include_str!("../../../../examples/bidirectional.toml"),
    ),
    (
        "mixed-streams",
        include_str!("../../../../examples/mixed-streams.toml"),
    ),
    ("memory", include_str!("../../../../examples/memory.toml")),
    (
        "rfc2544",
        include_str!("../../../../examples/bench/rfc2544.toml"),
    ),
];

pub(crate) async fn index() -> Response {
    page(INDEX.to_owned())
}

fn page(text: String) -> Response {
    let policy = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    (policy, typed("text/html", text)).into_response()
}

pub(crate) async fn asset(Path(name): Path<String>) -> ApiResult<Response> {
    let known = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = known.ok_or_else(|| ApiError::unknown("file"))?;
    Ok(typed(kind, (*text).to_owned()))
}

/// Runs on the page without scripts.
const MOST_LISTED: usize = 1000;

/// The history as a page that needs no scripts.
pub(crate) async fn history(State(app): State<App>) -> Response {
    let runs = app.runs.list();
    let rows = runs.iter().take(MOST_LISTED).map(history_row);
    let rows: String = rows.collect();
    page(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>wirebench: runs</title>\
         <link rel=\"stylesheet\" href=\"/assets/report.css\"></head>\n<body>\n<h1>Runs</h1>\n<div class=\"wide\">\
         <table class=\"t\"><thead><tr><th>run</th><th>name</th><th>kind</th><th>target</th><th>state</th>\
         <th>reason</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n</body>\n</html>\n"
    ))
}

fn history_row(run: &RunMeta) -> String {
    let state = match run.verdict {
        Some(verdict) => format!("{verdict:?}"),
        None => format!("{:?}", run.state),
    };
    let id = pages::escaped(&run.id);
    let link = match run.verdict {
        Some(_) => format!("<a href=\"/api/v1/runs/{id}/report?format=html\">{id}</a>"),
        None => id,
    };
    let texts = [&run.name, &run.kind, &run.target, &state, &run.reason];
    let cells: String = (texts.into_iter())
        .map(|text| format!("<td>{}</td>", pages::escaped(text)))
        .collect();
    format!("<tr><td>{link}</td>{cells}</tr>\n")
}

/// Example of a plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Example {
    /// Name.
    name: &'static str,
    /// Description: its purpose and its needs.
    about: String,
    /// The plan.
    toml: &'static str,
}

pub(crate) async fn examples() -> Json<Vec<Example>> {
    let all = EXAMPLES.into_iter().map(|(name, toml)| {
        let about = toml.lines().map_while(|line| line.strip_prefix("# "));
        Example {
            name,
            about: about.collect::<Vec<_>>().join(" "),
            toml,
        }
    });
    Json(all.collect())
}

/// Token of a client, without its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TokenDocument {
    /// Part of the token that names it.
    id: String,
    /// Name of the client.
    name: String,
    /// Rights of the client.
    role: Role,
    /// Time from which on the token is refused, RFC 3339.
    expires: Option<String>,
}

impl From<TokenEntry> for TokenDocument {
    fn from(entry: TokenEntry) -> Self {
        Self {
            expires: entry.expires().map(|at| at.to_string()),
            id: entry.id,
            name: entry.name,
            role: entry.role,
        }
    }
}

pub(crate) async fn tokens(State(app): State<App>) -> ApiResult<Json<Vec<TokenDocument>>> {
    blocking(move || {
        let all = app.tokens.read().map_err(ApiError::internal)?;
        Ok(Json(all.into_iter().map(TokenDocument::from).collect()))
    })
    .await
}

/// Request for a token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    /// Name of the client.
    name: String,
    /// Rights of the client.
    role: Role,
    /// Time after which the token is refused: `12h`, `90d`. Without it, it does not expire.
    expires: Option<String>,
}

/// A token that was made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MadeToken {
    /// The token. It cannot be found out later.
    token: String,
}

/// Refuses changes of the tokens by clients that need none: they would last longer than this server.
fn needs_tokens(ticket: &Ticket) -> ApiResult<()> {
    match ticket.is_authenticated() {
        true => Ok(()),
        false => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "clients of this server need no tokens; use wirebench token",
        )),
    }
}

pub(crate) async fn add_token(
    State(app): State<App>,
    Extension(ticket): Extension<Ticket>,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Response> {
    let new: NewToken = parsed(body)?;
    needs_tokens(&ticket)?;
    let expires = new.expires.as_deref().map(lifetime).transpose();
    let expires = expires.map_err(|what| ApiError::bad("expires", what))?;
    blocking(move || {
        let made = app.tokens.add(&new.name, new.role, expires);
        let token = made.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => ApiError::bad("name", error.to_string()),
            _ => ApiError::internal(error),
        })?;
        Ok((StatusCode::CREATED, Json(MadeToken { token })).into_response())
    })
    .await
}

pub(crate) async fn remove_token(
    State(app): State<App>,
    Extension(ticket): Extension<Ticket>,
    RunId(id): RunId,
) -> ApiResult<StatusCode> {
    needs_tokens(&ticket)?;
    blocking(
        move || match app.tokens.remove(&id).map_err(ApiError::internal)? {
            0 => Err(ApiError::unknown("token")),
            _ => Ok(StatusCode::NO_CONTENT),
        },
    )
    .await
}

/// A run as the page shows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunView {
    #[serde(flatten)]
    meta: RunMeta,
    /// True if the rate can be changed now.
    can_be_steered: bool,
    /// The report so far, or the final one, as HTML.
    body: String,
    /// Figures of its plots.
    #[schemars(with = "serde_json::Value")]
    data: Box<RawValue>,
}

/// Report of a run so far as HTML, made once for all readers.
type Made = Arc<Mutex<(u64, Arc<pages::Fragment>)>>;

/// Reports so far, by run.
#[derive(Clone, Default)]
pub(crate) struct Views(Arc<Mutex<BTreeMap<String, Made>>>);

impl Views {
    /// The report of a run so far. It is made anew after each event.
    fn get(&self, run: &Run, is_current: impl Fn(&str) -> bool) -> Arc<pages::Fragment> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|id, _| is_current(id));
        let made = Arc::clone(all.entry(run.id.clone()).or_default());
        drop(all);
        let last = run.feed.last();
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 != last {
            *made = (last, Arc::new(of_current(run)));
        }
        Arc::clone(&made.1)
    }
}

fn of_current(run: &Run) -> pages::Fragment {
    let Some(report) = run.so_far() else {
        return pages::Fragment::default();
    };
    let name = run.meta().name;
    let mut document = pages::document(&[pages::Run { name, report }]);
    // It has no verdict yet.
    document.verdicts.clear();
    pages::fragment(&document)
}

pub(crate) async fn view(State(app): State<App>, RunId(id): RunId) -> ApiResult<Json<RunView>> {
    blocking(move || {
        let meta = app.runs.get(&id).ok_or_else(|| ApiError::unknown("run"))?;
        let current = app.runs.current(&id).filter(|run| run.meta().end.is_none());
        let fragment = match &current {
            Some(run) => {
                let is_current = |id: &str| app.runs.current(id).is_some();
                app.views.get(run, is_current)
            }
            None => Arc::new(match app.runs.report(&id) {
                Some(report) => {
                    let name = meta.name.clone();
                    pages::fragment(&pages::document(&[pages::Run { name, report }]))
                }
                None => pages::Fragment::default(),
            }),
        };
        let data = match fragment.data.as_str() {
            "" => "{\"xs\":[],\"plots\":[]}",
            data => data,
        };
        Ok(Json(RunView {
            can_be_steered: current.is_some_and(|run| run.can_be_steered()),
            body: fragment.body.clone(),
            data: RawValue::from_string(data.to_owned()).map_err(ApiError::internal)?,
            meta,
        }))
    })
    .await
}
