//! Requests about runs and ports.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::{
        FromRequestParts, Path, Query, Request, State,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned};
use serde_json::Value;
use tower::ServiceExt as _;
use tower_http::services::ServeFile;
use wb_files::compare::compare_reports;
use wb_model::{
    Plan, Report, Snapshot,
    powers::PowerUse,
    text::{is_unprintable, plan_from_toml, plan_to_toml},
    timeline::Timeline,
    units::{Rate, Span},
};
use wb_render::{metrics, report as pages, text::Options};
use wb_runs::{Concern, NumberedEvent, RunMeta, RunRequest, RunState, Runs};
use wb_session::{Steer, StreamSteer};

use crate::{
    access::Ticket,
    answer::{ApiError, ApiResult, blocking},
    events::EventStream,
    host,
    otg::{ClientNetwork, Otg},
    page::Views,
    tokens::{Role, TokenFile, digest_of},
};

/// Time for which a request with an `Idempotency-Key` is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Type of a body that is a plan in TOML.
const TOML: &[u8] = b"application/toml";
/// Longest time that a request waits for the figures of a run over time.
const COURSE: Duration = Duration::from_secs(3);
/// Number of such requests that are remembered.
const MOST_KEYS: usize = 10_000;
/// Maximum number of labels of a run.
const MOST_LABELS: usize = 32;
/// Maximum number of runs in a comparison.
const MOST_COMPARED: usize = 16;
/// Longest lease of a port.
const LONGEST_LEASE: Duration = Duration::from_secs(30 * 86_400);
/// Default number of runs in a list.
const LISTED: usize = 50;

/// State that all requests share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) runs: Runs,
    pub(crate) tokens: TokenFile,
    /// True if browsers reach the server over TLS.
    pub(crate) is_encrypted: bool,
    /// Views of current runs, with the number of the event after which they were made.
    pub(crate) views: Views,
    pub(crate) otg: Otg,
    /// Runs by the `Idempotency-Key` of their requests.
    keys: Arc<Mutex<BTreeMap<String, KnownKey>>>,
}

/// Request with an `Idempotency-Key`.
struct KnownKey {
    run: String,
    /// Digest of the body.
    request: String,
    at: Instant,
}

impl App {
    pub(crate) fn new(
        runs: Runs,
        tokens: TokenFile,
        is_encrypted: bool,
        otg_open: Vec<ClientNetwork>,
    ) -> Self {
        Self {
            otg: Otg::new(runs.clone(), otg_open),
            runs,
            tokens,
            is_encrypted,
            views: Views::default(),
            keys: Arc::default(),
        }
    }
}

/// Name of a run in a path.
pub(crate) struct RunId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for RunId {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, ApiError> {
        let mut names = Names::from_request_parts(parts, state).await?;
        Ok(Self(names.take("id")))
    }
}

/// Variable parts of a path, by their names.
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// Removes a part. Without it, the text is empty.
    pub(crate) fn take(&mut self, name: &str) -> String {
        self.0.remove(name).unwrap_or_default()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, ApiError> {
        let path: Result<Path<BTreeMap<String, String>>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        let names = path.map_err(|e| ApiError::bad("path", e.body_text()))?;
        Ok(Self(names.0))
    }
}

fn text_of(body: Result<Bytes, BytesRejection>) -> ApiResult<String> {
    let body = body.map_err(|e| ApiError::new(e.status(), e.body_text()))?;
    String::from_utf8(body.into()).map_err(|_| ApiError::bad("body", "is not UTF-8"))
}

/// Reads a JSON body. An empty one has the default values.
pub(crate) fn parsed<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> ApiResult<T> {
    let text = text_of(body)?;
    let text = match text.trim() {
        "" => "{}",
        text if text.starts_with('{') => text,
        _ => return Err(ApiError::bad("body", "must be a JSON object")),
    };
    serde_json::from_str(text).map_err(|e| ApiError::bad("body", e.to_string()))
}

pub(crate) fn query<T>(query: Result<Query<T>, QueryRejection>) -> ApiResult<T> {
    let query = query.map_err(|e| {
        let text = e.body_text();
        let what = text.strip_prefix("Failed to deserialize query string: ");
        ApiError::bad("query", what.unwrap_or(&text))
    })?;
    Ok(query.0)
}

/// Plan in a request, as JSON or as TOML text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanBody {
    /// The plan.
    #[schemars(with = "Option<Plan>")]
    plan: Option<Value>,
    /// The plan as TOML text, instead of `plan`.
    plan_toml: Option<String>,
}

/// Request for a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRun {
    /// The plan.
    #[schemars(with = "Option<Plan>")]
    plan: Option<Value>,
    /// The plan as TOML text, instead of `plan`.
    plan_toml: Option<String>,
    /// Name for people.
    #[serde(default)]
    name: String,
    /// Labels for programs.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Time to wait for ports that are in use: `30s`. Without it, such a run is refused.
    wait: Option<Span>,
    /// Owner for the run: it may use the ports of this owner.
    owner: Option<String>,
    /// Confirm that no other system uses the network of a benchmark.
    #[serde(default)]
    isolated: bool,
}

/// Reads a plan from one of its two forms.
fn plan_of(plan: Option<Value>, toml: Option<String>) -> ApiResult<Plan> {
    let text = match (plan, toml) {
        (Some(plan), None) => plan.to_string(),
        (None, Some(toml)) => toml,
        _ => return Err(ApiError::bad("body", "give either plan or plan_toml")),
    };
    read_plan(&text)
}

fn read_plan(text: &str) -> ApiResult<Plan> {
    plan_from_toml("plan", text).map_err(|e| {
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "the plan is not valid");
        // Lines of JSON are not those of the request.
        let line = e.line.filter(|_| !text.starts_with('{'));
        let place = line.map_or_else(|| "plan".to_owned(), |line| format!("plan, line {line}"));
        error.at(place, e.message)
    })
}

fn is_toml(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map(|kind| kind.as_bytes());
    let kind = kind.and_then(|kind| kind.get(..TOML.len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(TOML))
}

/// Result of a check.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checked {
    /// The plan. Several jobs of a kind have names.
    plan: Plan,
    /// The plan as TOML text.
    plan_toml: String,
    /// Warnings about it.
    warnings: Vec<String>,
    /// Powers that it uses.
    powers: Vec<PowerUse>,
    /// Concerns to confirm with `isolated`.
    concerns: Vec<Concern>,
}

pub(crate) async fn check(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Json<Checked>> {
    blocking(move || {
        let plan = match is_toml(&headers) {
            true => read_plan(&text_of(body)?)?,
            false => {
                let body: PlanBody = parsed(body)?;
                plan_of(body.plan, body.plan_toml)?
            }
        };
        let (plan, warnings, concerns) = app.runs.check(&plan)?;
        Ok(Json(Checked {
            powers: plan.powers(),
            plan_toml: plan_to_toml(&plan),
            plan,
            warnings,
            concerns,
        }))
    })
    .await
}

pub(crate) async fn start(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Response> {
    blocking(move || begin(&app, &headers, body)).await
}

fn begin(
    app: &App,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Response> {
    let digest = body
        .as_ref()
        .map(|body| digest_of(body))
        .unwrap_or_default();
    let request = match is_toml(headers) {
        true => RunRequest {
            plan: read_plan(&text_of(body)?)?,
            ..RunRequest::default()
        },
        false => {
            let new: NewRun = parsed(body)?;
            RunRequest {
                plan: plan_of(new.plan, new.plan_toml)?,
                name: checked_text("name", new.name)?,
                labels: new.labels,
                wait: (new.wait.map(|wait| Duration::from_nanos(wait.as_nanos())))
                    .filter(|wait| !wait.is_zero()),
                owner: new
                    .owner
                    .map(|name| checked_text("owner", name))
                    .transpose()?,
                isolated: new.isolated,
                held: Vec::new(),
            }
        }
    };
    if request.labels.len() > MOST_LABELS {
        return Err(ApiError::bad(
            "labels",
            format!("at most {MOST_LABELS} labels are allowed"),
        ));
    }
    for (label, value) in &request.labels {
        checked_text("labels", format!("{label}{value}"))?;
    }
    let key = headers.get("idempotency-key");
    let key = key.map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
    let key = key.filter(|key| !key.is_empty());
    let key = key.map(|key| checked_text("Idempotency-Key", key));
    let key = key.transpose()?;
    let Some(key) = key else {
        return Ok(started(&app.runs.start(request)?.meta()));
    };
    // A repeated request waits here until the first one has its run.
    let mut keys = app.keys.lock().unwrap_or_else(PoisonError::into_inner);
    keys.retain(|_, known| known.at.elapsed() < REMEMBERED);
    let known = keys.get(&key);
    let of_request = known.is_some_and(|known| known.request == digest);
    if let Some(meta) = known.and_then(|known| app.runs.get(&known.run)) {
        return match of_request {
            true => Ok(started(&meta)),
            false => Err(ApiError::new(
                StatusCode::CONFLICT,
                "the Idempotency-Key was used for another request",
            )),
        };
    }
    let meta = app.runs.start(request)?.meta();
    if keys.len() >= MOST_KEYS {
        let oldest = keys.iter().min_by_key(|(_, known)| known.at);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            keys.remove(&oldest);
        }
    }
    let known = KnownKey {
        run: meta.id.clone(),
        request: digest,
        at: Instant::now(),
    };
    keys.insert(key, known);
    Ok(started(&meta))
}

/// Refuses names that would break lists of text.
fn checked_text(place: &str, text: String) -> ApiResult<String> {
    match text.contains(is_unprintable) || text.len() > 200 {
        true => Err(ApiError::bad(
            place,
            "must have at most 200 characters, none of them a control character",
        )),
        false => Ok(text),
    }
}

/// The answer to a request that started a run, or put it into the queue.
fn started(meta: &RunMeta) -> Response {
    let status = match meta.state {
        RunState::Queued => StatusCode::ACCEPTED,
        _ => StatusCode::CREATED,
    };
    let place = format!("/api/v1/runs/{}", meta.id);
    (status, [(header::LOCATION, place)], Json(meta.clone())).into_response()
}

/// Which runs are listed.
#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    state: Option<RunState>,
    label: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

/// A list of runs as JSON.
struct RunList(Vec<Arc<RunMeta>>);

impl Serialize for RunList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|meta| &**meta))
    }
}

pub(crate) async fn list(
    State(app): State<App>,
    asked: Result<Query<ListQuery>, QueryRejection>,
) -> ApiResult<Response> {
    let asked = query(asked)?;
    blocking(move || {
        let has_label = |meta: &Arc<RunMeta>| {
            asked
                .label
                .as_ref()
                .is_none_or(|label| match label.split_once('=') {
                    Some((key, value)) => meta.labels.get(key).is_some_and(|own| own == value),
                    None => meta.labels.contains_key(label),
                })
        };
        let runs = app.runs.list().into_iter();
        let runs = runs.filter(|meta| {
            asked.state.is_none_or(|state| meta.state == state)
                && asked.before.as_ref().is_none_or(|before| meta.id < *before)
                && has_label(meta)
        });
        let runs = RunList(runs.take(asked.limit.unwrap_or(LISTED)).collect());
        // The list may be long, so it is written here and not by the threads that serve requests.
        let text = serde_json::to_vec(&runs).map_err(ApiError::internal)?;
        let kind = [(header::CONTENT_TYPE, "application/json")];
        Ok((kind, text).into_response())
    })
    .await
}

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunDocument {
    #[serde(flatten)]
    meta: RunMeta,
    /// The last snapshot of a current run. The report has the figures of one that has ended.
    #[schemars(with = "Option<Snapshot>")]
    snapshot: Option<Value>,
    /// Messages about the run.
    warnings: Vec<String>,
}

pub(crate) async fn get(State(app): State<App>, RunId(id): RunId) -> ApiResult<Json<RunDocument>> {
    blocking(move || {
        let meta = app.runs.get(&id).ok_or_else(|| ApiError::unknown("run"))?;
        let Some(run) = app.runs.current(&id) else {
            let report = app.runs.report(&id);
            return Ok(Json(RunDocument {
                meta,
                snapshot: None,
                warnings: report.map(|report| report.warnings).unwrap_or_default(),
            }));
        };
        let events = run.feed.after(0).events;
        let last = events.iter().rev().find(|event| event.name == "snapshot");
        let messages = events.iter().filter(|event| event.name == "message");
        let json = |event: &NumberedEvent| serde_json::from_str::<Value>(&event.data).ok();
        let warnings = messages.filter_map(|event| Some(json(event)?["text"].as_str()?.to_owned()));
        Ok(Json(RunDocument {
            meta,
            snapshot: last.and_then(json),
            warnings: warnings.collect(),
        }))
    })
    .await
}

pub(crate) async fn plan(
    State(app): State<App>,
    RunId(id): RunId,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let plan = blocking(move || app.runs.plan(&id).ok_or_else(|| ApiError::unknown("run"))).await?;
    Ok(
        match wanted(&headers, &["application/json", "application/toml"]) {
            "application/toml" => typed("application/toml", plan_to_toml(&plan)),
            _ => Json(plan).into_response(),
        },
    )
}

/// The one of these types that the client likes best (RFC 9110, 12.5.1); of equal ones, and without a wish, the first.
fn wanted(headers: &HeaderMap, offered: &[&'static str]) -> &'static str {
    let accept = headers.get_all(header::ACCEPT).iter();
    let accept: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
    let accept = accept.join(",");
    let ranges = accept.split(',').map(|range| {
        let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
        let mut parameters = parameters.split(';');
        let weight = parameters.find_map(|one| one.trim().strip_prefix("q=")?.parse::<f64>().ok());
        (kind.trim(), weight.unwrap_or(1.0))
    });
    let ranges: Vec<(&str, f64)> = ranges.collect();
    // The most exact range counts.
    let weight = |kind: &str| {
        let group = kind.split('/').next().unwrap_or_default();
        let of = |wish: &str| {
            ranges
                .iter()
                .find(|(own, _)| own.eq_ignore_ascii_case(wish))
        };
        let exact = of(kind).or_else(|| of(&format!("{group}/*")));
        exact
            .or_else(|| of("*/*"))
            .map_or(0.0, |(_, weight)| *weight)
    };
    let mut best = (offered.first().copied().unwrap_or_default(), 0.0);
    for kind in offered {
        let own = weight(kind);
        if own > best.1 {
            best = (*kind, own);
        }
    }
    best.0
}

pub(crate) fn typed(kind: &'static str, text: impl Into<Body>) -> Response {
    let kind = match kind.starts_with("text/") {
        true => format!("{kind}; charset=utf-8"),
        false => kind.to_owned(),
    };
    ([(header::CONTENT_TYPE, kind)], text.into()).into_response()
}

pub(crate) async fn events(
    State(app): State<App>,
    Extension(ticket): Extension<Ticket>,
    RunId(id): RunId,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let last = headers.get("last-event-id");
    let last = match last.map(|id| id.to_str().unwrap_or_default().parse::<u64>()) {
        None => 0,
        Some(Ok(last)) => last,
        Some(Err(_)) => return Err(ApiError::bad("Last-Event-ID", "is not a number")),
    };
    blocking(move || {
        if let Some(run) = app.runs.current(&id) {
            return Ok(EventStream::of_current(run, last, ticket)
                .answer()
                .into_response());
        }
        let meta = app.runs.get(&id).ok_or_else(|| ApiError::unknown("run"))?;
        let mut events = app.runs.events(&id).peekable();
        if events.peek().is_none() {
            let data = serde_json::json!({
                "state": meta.state, "end": meta.end, "reason": meta.reason,
            });
            let event = NumberedEvent {
                id: 1,
                name: "state",
                data: data.to_string().into(),
            };
            let only = std::iter::once(event);
            return Ok(EventStream::of_ended(only, last, ticket)
                .answer()
                .into_response());
        }
        Ok(EventStream::of_ended(events, last, ticket)
            .answer()
            .into_response())
    })
    .await
}

/// From when on the figures are wanted.
#[derive(Debug, Deserialize)]
pub(crate) struct CourseQuery {
    #[serde(default)]
    from_ns: u64,
}

pub(crate) async fn snapshots(
    State(app): State<App>,
    RunId(id): RunId,
    asked: Result<Query<CourseQuery>, QueryRejection>,
) -> ApiResult<Json<Timeline>> {
    let from_ns = query(asked)?.from_ns;
    if let Some(run) = app.runs.current(&id) {
        let known = run.courses();
        run.ask_for_course();
        let until = Instant::now() + COURSE;
        let is_current = || run.courses() == known && !run.feed.after(u64::MAX).over;
        let has_begun = run.meta().started.is_some();
        while has_begun && is_current() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if app.runs.current(&id).is_some() {
            let course = run.course().map(|course| (*course).clone());
            return Ok(Json(since(course.unwrap_or_default(), from_ns)));
        }
    }
    blocking(move || {
        app.runs.get(&id).ok_or_else(|| ApiError::unknown("run"))?;
        let report = app.runs.report(&id);
        let timeline = report.map(|report| report.timeline).unwrap_or_default();
        Ok(Json(since(timeline, from_ns)))
    })
    .await
}

/// The moments of a timeline from one on.
fn since(mut timeline: Timeline, from_ns: u64) -> Timeline {
    let first = timeline.at_ns.partition_point(|at| *at < from_ns);
    timeline.at_ns.drain(..first);
    for column in &mut timeline.columns {
        column.values.drain(..first.min(column.values.len()));
    }
    timeline
}

/// Way in which a run is stopped.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Stop {
    /// In order, with the wait for frames in flight.
    #[default]
    Drain,
    /// Without it.
    Now,
}

/// Request to stop a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopBody {
    /// Way to stop it (default `drain`).
    #[serde(default)]
    how: Stop,
}

pub(crate) async fn stop(
    State(app): State<App>,
    RunId(id): RunId,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Response> {
    let body: StopBody = parsed(body)?;
    blocking(move || {
        if !app.runs.stop(&id, matches!(body.how, Stop::Now)) {
            return Err(ApiError::unknown("run"));
        }
        let meta = app.runs.get(&id).ok_or_else(|| ApiError::unknown("run"))?;
        let status = match meta.state {
            RunState::Ended => StatusCode::OK,
            _ => StatusCode::ACCEPTED,
        };
        Ok((status, Json(meta)).into_response())
    })
    .await
}

/// Request to change the rate of a run: `rate` or `pause` for loads, `stream` with `rate` or `on` for a stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SteerBody {
    /// Share of the planned rate of loads, above 0, up to 100; or the rate of a stream: `10kpps`, `40%`.
    rate: Option<AskedRate>,
    /// True: start nothing new.
    pause: Option<bool>,
    /// Name of the stream. All streams with this name change.
    stream: Option<String>,
    /// False: the stream pauses, and its frames are not intended. True: it continues.
    on: Option<bool>,
}

/// Rate in a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AskedRate {
    /// Share of the planned rate.
    Share(f64),
    /// Rate of a stream.
    Stream(String),
}

/// Wish for a run.
enum Wish {
    Load(Steer),
    Stream(String, StreamSteer),
}

impl SteerBody {
    fn wish(self) -> ApiResult<Wish> {
        let load = |wish| Ok(Wish::Load(wish));
        let what = "give rate, above 0 and up to 100, or pause; or stream with a rate, such as 10kpps, or on";
        match (self.stream, self.rate, self.pause, self.on) {
            (None, Some(AskedRate::Share(rate)), None, None) if rate > 0.0 && rate <= 100.0 => {
                load(Steer::Rate(rate))
            }
            (None, None, Some(true), None) => load(Steer::Pause),
            (None, None, Some(false), None) => load(Steer::Rate(1.0)),
            (Some(stream), Some(AskedRate::Stream(rate)), None, None) => {
                let rate = rate.parse::<Rate>();
                let rate = rate.map_err(|e| ApiError::bad("rate", e.to_string()))?;
                Ok(Wish::Stream(stream, StreamSteer::Rate(rate)))
            }
            (Some(stream), None, None, Some(on)) => {
                let wish = if on {
                    StreamSteer::On
                } else {
                    StreamSteer::Off
                };
                Ok(Wish::Stream(stream, wish))
            }
            _ => Err(ApiError::bad("body", what)),
        }
    }
}

pub(crate) async fn steer(
    State(app): State<App>,
    RunId(id): RunId,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Response> {
    let body: SteerBody = parsed(body)?;
    let wish = body.wish()?;
    let Some(run) = app.runs.current(&id) else {
        return Err(match app.runs.get(&id) {
            Some(_) => ApiError::new(StatusCode::CONFLICT, "the run has ended"),
            None => ApiError::unknown("run"),
        });
    };
    let followed = match wish {
        Wish::Load(wish) => run.steer(wish).then_some(()).ok_or_else(|| {
            "the senders of this run cannot follow; only loads can, and streams by their names"
                .into()
        }),
        Wish::Stream(stream, wish) => run.steer_streams(&[(stream, wish)]),
    };
    match followed {
        Ok(()) => Ok((StatusCode::ACCEPTED, Json(run.meta())).into_response()),
        Err(why) => Err(ApiError::new(StatusCode::CONFLICT, why)),
    }
}

/// Forms of a report: name in a query, and type.
const FORMS: [(&str, &str); 6] = [
    ("json", "application/json"),
    ("html", "text/html"),
    ("markdown", "text/markdown"),
    ("csv", "text/csv"),
    ("text", "text/plain"),
    ("junit", "application/junit+xml"),
];

/// Form of a report, for links.
#[derive(Debug, Deserialize)]
pub(crate) struct FormQuery {
    format: Option<String>,
}

pub(crate) async fn report(
    State(app): State<App>,
    RunId(id): RunId,
    headers: HeaderMap,
    asked: Result<Query<FormQuery>, QueryRejection>,
) -> ApiResult<Response> {
    let form = match query(asked)?.format {
        None => wanted(&headers, &FORMS.map(|(_, kind)| kind)),
        Some(name) => {
            let form = FORMS.iter().find(|(known, _)| *known == name);
            let names = FORMS.map(|(known, _)| known).join(", ");
            form.ok_or_else(|| ApiError::bad("format", format!("use one of {names}")))?
                .1
        }
    };
    blocking(move || {
        let meta = app.runs.get(&id).ok_or_else(|| ApiError::unknown("run"))?;
        let report = ended_report(&app, &meta)?;
        let run = |report| pages::Run {
            name: meta.name.clone(),
            report,
        };
        let page = |report| pages::document(&[run(report)]);
        let options = Options {
            color: false,
            width: 100,
            verbose: true,
        };
        Ok(match form {
            "text/html" => typed(form, pages::html(&page(report))),
            "text/markdown" => typed(form, pages::markdown(&page(report))),
            "text/csv" => typed(form, wb_render::csv::report(&report)),
            "text/plain" => typed(form, wb_render::text::report(&report, &options)),
            "application/junit+xml" => typed("application/xml", wb_render::junit::report(&report)),
            _ => Json(report).into_response(),
        })
    })
    .await
}

/// Error for a report that was there.
pub(crate) const NO_REPORT: &str = "the report is missing or cannot be read";

/// The report of a run that has ended.
pub(crate) fn ended_report(app: &App, meta: &RunMeta) -> ApiResult<Report> {
    app.runs.report(&meta.id).ok_or_else(|| {
        let what = match (meta.state, meta.verdict) {
            (RunState::Ended, None) => "the run never started, so it has no report",
            (RunState::Ended, Some(_)) => NO_REPORT,
            _ => "not ended",
        };
        ApiError::new(StatusCode::NOT_FOUND, what)
    })
}

/// File that a capture of a run has written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileDocument {
    /// Name.
    name: String,
    /// Size in bytes.
    bytes: u64,
}

pub(crate) async fn files(
    State(app): State<App>,
    RunId(id): RunId,
) -> ApiResult<Json<Vec<FileDocument>>> {
    blocking(move || {
        let folder = app
            .runs
            .files(&id)
            .ok_or_else(|| ApiError::unknown("run"))?;
        // A link in the place of the folder could lead anywhere.
        let folder = Some(folder).filter(|path| {
            let about = path.symlink_metadata();
            about.is_ok_and(|about| about.is_dir())
        });
        let entries = folder.map(std::fs::read_dir).into_iter().flatten();
        let entries = entries.flatten().flatten();
        let files = entries.filter_map(|entry| {
            let about = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(FileDocument {
                name: entry.file_name().into_string().ok()?,
                bytes: about.len(),
            })
        });
        let mut files: Vec<_> = files.collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Json(files))
    })
    .await
}

pub(crate) async fn file(
    State(app): State<App>,
    mut names: Names,
    request: Request,
) -> ApiResult<Response> {
    let (id, name) = (names.take("id"), names.take("name"));
    let Json(known) = files(State(app.clone()), RunId(id.clone())).await?;
    // Only names of the list are opened, so no path leads out of the folder.
    let folder = app
        .runs
        .files(&id)
        .filter(|_| known.iter().any(|file| file.name == name));
    let path = folder.ok_or_else(|| ApiError::unknown("file"))?.join(name);
    let served = ServeFile::new(path).oneshot(request).await;
    let mut served = served.map_err(ApiError::internal)?.into_response();
    // Captured bytes are never shown as a page of this server.
    let headers = served.headers_mut();
    let binary = header::HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, binary);
    let attachment = header::HeaderValue::from_static("attachment");
    headers.insert(header::CONTENT_DISPOSITION, attachment);
    Ok(served)
}

/// The runs to compare.
#[derive(Debug, Deserialize)]
pub(crate) struct CompareQuery {
    runs: String,
}

pub(crate) async fn compare(
    State(app): State<App>,
    headers: HeaderMap,
    asked: Result<Query<CompareQuery>, QueryRejection>,
) -> ApiResult<Response> {
    let asked = query(asked)?;
    blocking(move || {
        let mut runs = Vec::new();
        if asked.runs.split(',').count() > MOST_COMPARED {
            let what = format!("at most {MOST_COMPARED} runs are compared");
            return Err(ApiError::bad("runs", what));
        }
        for id in asked.runs.split(',') {
            let report = app.runs.report(id);
            let report = report.ok_or_else(|| ApiError::unknown("report").at("runs", id))?;
            let name = app.runs.get(id).map(|meta| meta.name).unwrap_or_default();
            let is_known = |run: &pages::Run| run.name == name;
            let name = match name.as_str() {
                "" => id.to_owned(),
                _ if runs.iter().any(is_known) => format!("{name} ({id})"),
                _ => name,
            };
            runs.push(pages::Run { name, report });
        }
        let kinds = ["text/html", "text/markdown", "application/json"];
        let form = wanted(&headers, &kinds);
        if form == "application/json" {
            let [old, new] = runs.as_slice() else {
                return Err(ApiError::bad(
                    "runs",
                    "as JSON, two benchmarks are compared",
                ));
            };
            let compared = compare_reports(&old.report, &new.report, None);
            let compared = compared.map_err(|e| ApiError::bad("runs", e.to_string()))?;
            return Ok(Json(compared).into_response());
        }
        let document = pages::document(&runs);
        Ok(match form {
            "text/markdown" => typed("text/markdown", pages::markdown(&document)),
            _ => typed("text/html", pages::html(&document)),
        })
    })
    .await
}

pub(crate) async fn remove(State(app): State<App>, RunId(id): RunId) -> ApiResult<StatusCode> {
    blocking(move || {
        let is_current = |meta: &RunMeta| meta.state != RunState::Ended;
        if app.runs.get(&id).as_ref().is_some_and(is_current) {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "the run has not ended; stop it first",
            ));
        }
        match app.runs.remove(&id) {
            true => Ok(StatusCode::NO_CONTENT),
            false => Err(ApiError::unknown("run")),
        }
    })
    .await
}

/// Request for a lease of a port.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseBody {
    /// The owner.
    owner: String,
    /// Time of the lease, above 0: `10m`.
    r#for: Span,
    /// Take the port from its user, and stop the run that uses it.
    #[serde(default)]
    steal: bool,
}

/// Lease of a port.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Lease {
    /// The port.
    port: String,
    /// The owner.
    owner: String,
    /// Time until the lease ends, in ns.
    for_ns: u64,
}

pub(crate) async fn own(
    State(app): State<App>,
    Extension(ticket): Extension<Ticket>,
    mut names: Names,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Json<Lease>> {
    let port = names.take("locator");
    let body: LeaseBody = parsed(body)?;
    let owner = checked_text("owner", body.owner)?;
    blocking(move || {
        if !app.runs.offers(&port) || !host::is_interface(&port) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "this server does not offer this port",
            ));
        }
        let time = Duration::from_nanos(body.r#for.as_nanos());
        if owner.is_empty() || time.is_zero() || time > LONGEST_LEASE {
            return Err(ApiError::bad(
                "body",
                "owner must have a name, and for must be above 0 and at most 720h",
            ));
        }
        if body.steal && ticket.role < Role::Admin {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "the role admin is needed to steal a port",
            ));
        }
        match app.runs.own(&port, &owner, time, body.steal) {
            Ok(()) => Ok(Json(Lease {
                port,
                owner,
                for_ns: body.r#for.as_nanos(),
            })),
            Err(holder) => {
                let error = ApiError::new(StatusCode::CONFLICT, "the port is in use");
                Err(error.at(port, format!("is held by {holder}")))
            }
        }
    })
    .await
}

/// Owner of the lease that ends.
#[derive(Debug, Deserialize)]
pub(crate) struct OwnerQuery {
    owner: String,
}

pub(crate) async fn disown(
    State(app): State<App>,
    mut names: Names,
    asked: Result<Query<OwnerQuery>, QueryRejection>,
) -> ApiResult<StatusCode> {
    let port = names.take("locator");
    let owner = query(asked)?.owner;
    match app.runs.disown(&port, &owner) {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::unknown("lease of this owner")),
    }
}

pub(crate) async fn host(State(app): State<App>) -> ApiResult<Json<host::HostDocument>> {
    blocking(move || Ok(Json(host::host(&app.runs)))).await
}

/// Request for the ports.
#[derive(Debug, Deserialize)]
pub(crate) struct PortsQuery {
    doctor: Option<String>,
}

pub(crate) async fn ports(
    State(app): State<App>,
    asked: Result<Query<PortsQuery>, QueryRejection>,
) -> ApiResult<Json<Vec<host::PortDocument>>> {
    let checks = query(asked)?.doctor.is_some_and(|value| value != "0");
    blocking(move || Ok(Json(host::ports(&app.runs, checks)?))).await
}

/// Figures of the current runs for Prometheus: OpenMetrics if the client accepts it, else the older text format.
pub(crate) async fn metrics(State(app): State<App>, headers: HeaderMap) -> ApiResult<Response> {
    let accept = headers
        .get(header::ACCEPT)
        .map(|kinds| kinds.as_bytes().to_vec());
    blocking(move || {
        let (active, runs) = app.runs.figures();
        let text = metrics::text_of_runs(env!("CARGO_PKG_VERSION"), active, &runs);
        let accept = String::from_utf8_lossy(&accept.unwrap_or_default()).into_owned();
        let (kind, text) = match accept.contains("application/openmetrics-text") {
            true => (metrics::MEDIA_TYPE, text),
            false => (metrics::OLDER_MEDIA_TYPE, metrics::older(&text)),
        };
        Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
    })
    .await
}

pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, &'static str) {
    match app.runs.is_ending() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "ending\n"),
        false => (StatusCode::OK, "ready\n"),
    }
}

#[cfg(test)]
mod tests {
    use wb_model::timeline::Column;

    use super::*;

    #[test]
    fn a_timeline_is_cut_at_a_moment() {
        let timeline = Timeline {
            at_ns: vec![0, 10, 20],
            columns: vec![
                Column {
                    values: vec![Some(1.0), Some(2.0), Some(3.0)],
                    ..Column::default()
                },
                // A figure that is known at the first moment only.
                Column {
                    values: vec![Some(1.0)],
                    ..Column::default()
                },
            ],
            ..Timeline::default()
        };
        let cut = since(timeline, 10);
        assert_eq!(cut.at_ns, [10, 20]);
        assert_eq!(cut.columns[0].values, [Some(2.0), Some(3.0)]);
        assert!(cut.columns[1].values.is_empty());
    }

    #[test]
    fn the_type_that_a_client_likes_best_is_sent() {
        let kinds = ["application/json", "text/html", "text/csv"];
        let of = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            wanted(&headers, &kinds)
        };
        assert_eq!(wanted(&HeaderMap::new(), &kinds), "application/json");
        for (accept, expected) in [
            ("*/*", "application/json"),
            ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
            ("application/json;q=0.1, text/csv", "text/csv"),
            ("Text/*;q=0.5", "text/html"),
            ("text/html;q=0, text/*", "text/csv"),
            ("image/png", "application/json"),
        ] {
            assert_eq!(of(accept), expected, "{accept}");
        }
    }

    #[test]
    fn plans_come_in_one_of_two_forms() {
        assert!(plan_of(None, None).is_err());
        assert!(plan_of(Some(Value::Null), Some(String::new())).is_err());
        let toml = "[[port]]\nname = \"a\"\nlocator = \"memory:x\"\n";
        let plan = plan_of(None, Some(toml.to_owned())).unwrap();
        let json = serde_json::to_value(&plan).unwrap();
        assert_eq!(plan_of(Some(json), None).unwrap(), plan);
    }
}
