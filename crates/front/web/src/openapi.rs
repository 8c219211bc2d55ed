//! Description of the API in OpenAPI 3.1, made from the table of requests and the types of their bodies.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    answer::ErrorBody,
    routes::{Body, ROUTES, Route},
};

/// Place of the schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// Returns the description of the API.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let settings = settings.with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route, &mut generator);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "wirebench",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Starts, watches and stops runs, and reads their reports.",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let in_path = route
        .path
        .split('{')
        .skip(1)
        .filter_map(|part| part.split('}').next());
    let in_path = in_path.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let in_query = route.query.iter().map(|(name, about)| {
        json!({ "name": name, "in": "query", "description": about, "schema": { "type": "string" } })
    });
    let in_headers = route.headers.iter().map(|(name, about)| {
        json!({ "name": name, "in": "header", "description": about, "schema": { "type": "string" } })
    });
    let parameters: Vec<Value> = in_path.chain(in_query).chain(in_headers).collect();
    let mut responses = Map::new();
    let (status, body) = &route.answer;
    for status in [Some(*status), route.also].into_iter().flatten() {
        responses.insert(status.to_string(), response("Success.", body, generator));
    }
    let error = Body::Json(|generator| generator.subschema_for::<ErrorBody>());
    let of_role: &[u16] = match route.role {
        Some(_) => &[401, 403, 429],
        None => &[],
    };
    let of_body: &[u16] = match route.body {
        Body::Empty => &[],
        _ => &[408, 413, 415],
    };
    for status in route.refusals.iter().chain(of_role).chain(of_body) {
        responses.insert(status.to_string(), response("Refused.", &error, generator));
    }
    let mut operation = json!({
        "summary": route.about,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(role) = route.role {
        operation["description"] = format!("Needs the role {}.", role.name()).into();
        operation["security"] = json!([{ "token": [] }]);
    }
    if let Some(mut content) = content(&route.body, generator) {
        if route.takes_toml {
            content["application/toml"] = json!({ "schema": { "type": "string" } });
        }
        operation["requestBody"] = json!({ "content": content });
    }
    operation
}

fn response(about: &str, body: &Body, generator: &mut SchemaGenerator) -> Value {
    let mut response = json!({ "description": about });
    if let Some(content) = content(body, generator) {
        response["content"] = content;
    }
    response
}

fn content(body: &Body, generator: &mut SchemaGenerator) -> Option<Value> {
    match body {
        Body::Json(shape) => Some(json!({ "application/json": { "schema": shape(generator) } })),
        Body::Of(kind) => {
            let mut content = Map::new();
            content.insert((*kind).to_owned(), json!({}));
            Some(content.into())
        }
        Body::Empty => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values of `$ref` in a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(all) => {
                for (key, value) in all {
                    match value.as_str().filter(|_| key == "$ref") {
                        Some(text) => found.push(text.to_owned()),
                        None => references(value, found),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_description_is_complete() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for reference in found {
            let place = reference.strip_prefix('#').unwrap();
            assert!(
                document.pointer(place).is_some(),
                "{reference} leads nowhere"
            );
        }
        let operations = document["paths"].as_object().unwrap().values();
        let operations: usize = operations.map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.len());
    }
}
