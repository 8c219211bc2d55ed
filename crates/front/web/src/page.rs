//! The page for browsers: its files, and the requests that only it needs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use wb_render::report as pages;
use wb_runs::{Run, RunMeta};
use wb_session::StreamState;

use crate::{
    access::Ticket,
    answer::{ApiError, ApiResult, blocking},
    runs::{App, NO_REPORT, Names, RunId, parsed, typed},
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
    page(INDEX)
}

fn page(text: impl Into<axum::body::Body>) -> Response {
    let policy = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    (policy, typed("text/html", text)).into_response()
}

pub(crate) async fn asset(mut names: Names) -> ApiResult<Response> {
    let name = names.take("name");
    let known = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = known.ok_or_else(|| ApiError::unknown("file"))?;
    Ok(typed(kind, *text))
}

/// Runs on the page without scripts.
const MOST_LISTED: usize = 1000;

/// The history as a page that needs no scripts.
pub(crate) async fn history(State(app): State<App>) -> ApiResult<Response> {
    blocking(move || Ok(page(history_page(&app)))).await
}

fn history_page(app: &App) -> String {
    let runs = app.runs.list();
    let rows = runs.iter().take(MOST_LISTED).map(|run| history_row(run));
    let rows: String = rows.collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>wirebench: runs</title>\
         <link rel=\"stylesheet\" href=\"/assets/report.css\"></head>\n<body>\n<h1>Runs</h1>\n\
         <p>Without scripts. <a href=\"/\">The page with scripts</a> also shows current runs and starts new ones.</p>\n<div class=\"wide\">\
         <table class=\"t\"><thead><tr><th>run</th><th>state</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n</body>\n</html>\n"
    )
}

fn history_row(run: &RunMeta) -> String {
    // The words of the API: `fail`, `running`.
    let state = serde_json::to_value(run.verdict)
        .ok()
        .filter(|word| !word.is_null());
    let state = state.or_else(|| serde_json::to_value(run.state).ok());
    let state = state
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let id = pages::escaped(&run.id);
    let link = match run.verdict {
        Some(_) => format!("<a href=\"/api/v1/runs/{id}/report?format=html\">{id}</a>"),
        None => id,
    };
    let started = run.started.as_ref().unwrap_or(&run.requested);
    let started = started.split('.').next().unwrap_or_default();
    let started = format!("{} UTC", started.replace('T', " "));
    let lines = [&run.name, &run.kind, &run.target, &started];
    let lines = lines.map(|text| pages::escaped(text));
    let (state, reason) = (pages::escaped(&state), pages::escaped(&run.reason));
    format!(
        "<tr><td>{link}<br>{}</td><td><b>{state}</b><br>{reason}</td></tr>\n",
        lines
            .into_iter()
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("<br>")
    )
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
            _ => ApiError::internal(app.tokens.unchanged(&error)),
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
    blocking(move || match app.tokens.remove(&id) {
        Err(error) => Err(ApiError::internal(app.tokens.unchanged(&error))),
        Ok(0) => Err(ApiError::unknown("token")),
        Ok(_) => Ok(StatusCode::NO_CONTENT),
    })
    .await
}

/// Maximum number of streams that the page shows.
const MOST_STREAMS: usize = 100;

/// A stream of a run, and what can change about it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StreamDocument {
    /// Name.
    name: String,
    /// False while it pauses.
    on: bool,
    /// Its rate, if it can change: `10kpps`.
    rate: Option<String>,
    /// Reason why it cannot change at all.
    fixed: Option<&'static str>,
}

impl From<StreamState> for StreamDocument {
    fn from(stream: StreamState) -> Self {
        Self {
            name: stream.name,
            on: stream.is_on,
            rate: stream.rate,
            fixed: stream.fixed,
        }
    }
}

/// A run as the page shows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunView {
    #[serde(flatten)]
    meta: RunMeta,
    /// True if the rate can be changed now.
    can_be_steered: bool,
    /// Streams that are sent now, the first [`MOST_STREAMS`].
    streams: Vec<StreamDocument>,
    /// Number of further streams.
    more_streams: usize,
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
                None => pages::Fragment {
                    body: (meta.verdict)
                        .map(|_| format!("<p class=\"warning\">{NO_REPORT}</p>"))
                        .unwrap_or_default(),
                    ..pages::Fragment::default()
                },
            }),
        };
        let data = match fragment.data.as_str() {
            "" => "{\"xs\":[],\"plots\":[]}",
            data => data,
        };
        let streams = current.as_ref().map(|run| run.streams());
        let streams = streams.unwrap_or_default();
        Ok(Json(RunView {
            more_streams: streams.len().saturating_sub(MOST_STREAMS),
            streams: (streams.into_iter().take(MOST_STREAMS))
                .map(StreamDocument::from)
                .collect(),
            can_be_steered: current.is_some_and(|run| run.can_be_steered()),
            body: fragment.body.clone(),
            data: RawValue::from_string(data.to_owned()).map_err(ApiError::internal)?,
            meta,
        }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs_stay_text_on_the_page_without_scripts() {
        let run = serde_json::json!({
            "id": "1", "name": "<script>\"'\u{202e}", "kind": "trial", "target": "a&b", "ports": [],
            "state": "ended", "verdict": "fail", "reason": "<b>", "requested": "2026-11-30T10:00:00.5Z", "elapsed_ns": 1,
        });
        let row = history_row(&serde_json::from_value(run).unwrap());
        assert_eq!(
            row,
            "<tr><td><a href=\"/api/v1/runs/1/report?format=html\">1</a><br>&lt;script&gt;&quot;&#39;?<br>trial<br>\
             a&amp;b<br>2026-11-30 10:00:00 UTC</td><td><b>fail</b><br>&lt;b&gt;</td></tr>\n"
        );
    }
}
