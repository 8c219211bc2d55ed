//! Requests about the hosts of a fleet.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
};
use schemars::JsonSchema;
use serde::Deserialize;
use wb_model::fleet::Agent;
use wb_session::Carrier;

use crate::{
    answer::{ApiError, ApiResult, blocking},
    runs::{App, Names, parsed},
};

fn carrier(app: &App) -> ApiResult<&Arc<dyn Carrier>> {
    let carrier = app.runs.settings().carrier.as_ref();
    carrier.ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "this server has no fleet; start it with --fleet",
        )
    })
}

pub(crate) async fn agents(State(app): State<App>) -> ApiResult<Json<Vec<Agent>>> {
    blocking(move || Ok(Json(carrier(&app)?.agents()))).await
}

/// Request to drain a host.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrainBody {
    /// False: the host accepts runs again.
    #[serde(default = "yes")]
    on: bool,
}

const fn yes() -> bool {
    true
}

pub(crate) async fn drain(
    State(app): State<App>,
    mut names: Names,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<StatusCode> {
    let (host, body) = (names.take("host"), parsed::<DrainBody>(body)?);
    blocking(move || {
        let drained = carrier(&app)?.drain(&host, body.on);
        drained.map_err(|why| ApiError::new(StatusCode::NOT_FOUND, why))?;
        Ok(StatusCode::ACCEPTED)
    })
    .await
}
