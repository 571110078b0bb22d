// SPDX-License-Identifier: GPL-2.0
//! JSON schema of a scenario's keys, for editors. It is derived from the types that parse a
//! scenario, so both have equal keys.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use xdc_base::error::{Error, Result};

use super::Scenario;

/// `xdc schema`: prints docs/scenario.schema.json.
pub fn command() -> Result<bool> {
    let schema = schema()?;
    println!("{schema:#}");
    Ok(true)
}

/// A variant has a scenario's keys, all optional, and array indices are keys too, so their values
/// are not described.
pub fn schema() -> Result<Value> {
    let failed = |err| Error::failure(format!("cannot write the schema: {err}"));
    let settings = SchemaSettings::draft07();
    let whole = settings.into_generator().into_root_schema_for::<Scenario>();
    let mut whole = serde_json::to_value(whole).map_err(failed)?;
    let mut take = |key: &str| match whole.as_object_mut() {
        Some(whole) => whole.remove(key).unwrap_or_default(),
        None => Value::Null,
    };
    let (draft, definitions) = (take("$schema"), take("definitions"));
    let mut keys = Map::new();
    if let Some(properties) = whole["properties"].as_object() {
        for (key, property) in properties {
            let said = property.get("description").cloned();
            keys.insert(key.clone(), json!({ "description": said.unwrap_or(json!("")) }));
        }
    }
    keys.insert(
        "extends".to_owned(),
        json!({
            "description": "Base scenario of this variant: a name or a file.",
            "type": "string"
        }),
    );
    keys.insert(
        "unset".to_owned(),
        json!({
            "description": "Keys of the base scenario to remove: queues.port.drain.",
            "type": "array",
            "items": { "type": "string" }
        }),
    );
    Ok(json!({
        "$schema": draft,
        "$comment": "SPDX-License-Identifier: GPL-2.0",
        "title": "A scenario of xdc",
        "type": "object",
        "definitions": definitions,
        "if": { "required": ["extends"] },
        "then": { "properties": keys, "additionalProperties": false },
        "else": whole
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::testing::SMALL;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// First violation of the schema's keywords, except patterns.
    fn mistake(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let inner = |schema: &Value, value: &Value, key: &str| {
            mistake(root, schema, value, &format!("{at}/{key}"))
        };
        let here = |schema: &Value| mistake(root, schema, value, at);
        let list = |key: &str| schema[key].as_array().into_iter().flatten();
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix('#').unwrap();
            return here(root.pointer(name).unwrap());
        }
        if let Some(condition) = schema.get("if") {
            let branch = match here(condition) {
                None => "then",
                Some(_) => "else",
            };
            return here(&schema[branch]);
        }
        if let Some(found) = list("allOf").find_map(here) {
            return Some(found);
        }
        for key in ["anyOf", "oneOf"] {
            if schema.get(key).is_some() && list(key).all(|one| here(one).is_some()) {
                return Some(format!("{at}: matches no schema of {key}"));
            }
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            Value::Null => Vec::new(),
            one => vec![one.clone()],
        };
        let is = |name: &Value| match name.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            other => panic!("{other}"),
        };
        if !types.is_empty() && !types.iter().any(is) {
            return Some(format!("{at}: not of type {types:?}"));
        }
        let choices: Vec<_> = list("enum").chain(schema.get("const")).collect();
        if !choices.is_empty() && !choices.contains(&value) {
            return Some(format!("{at}: none of {choices:?}"));
        }
        for (n, element) in value.as_array().into_iter().flatten().enumerate() {
            if let Some(found) = inner(&schema["items"], element, &n.to_string()) {
                return Some(found);
            }
        }
        let object = value.as_object()?;
        if let Some(key) = list("required").find(|key| !object.contains_key(key.as_str().unwrap()))
        {
            return Some(format!("{at}: without {key}"));
        }
        object.iter().find_map(|(key, value)| {
            match (schema["properties"].get(key), &schema["additionalProperties"]) {
                (Some(property), _) => inner(property, value, key),
                (None, Value::Bool(false)) => Some(format!("{at}: unknown key '{key}'")),
                (None, others) => inner(others, value, key),
            }
        })
    }

    fn mistake_of(schema: &Value, toml: &str) -> Option<String> {
        mistake(schema, schema, &value_of(toml), "")
    }

    fn value_of(toml: &str) -> Value {
        let table: toml::Table = toml::from_str(toml).unwrap();
        serde_json::to_value(table).unwrap()
    }

    #[test]
    fn the_schema_in_the_docs_is_current() {
        let text = fs::read_to_string(repository().join("docs/scenario.schema.json")).unwrap();
        let kept: Value = serde_json::from_str(&text).unwrap();
        assert!(kept == schema().unwrap(), "try: xdc schema >docs/scenario.schema.json");
    }

    #[test]
    fn every_shipped_scenario_is_valid() {
        let schema = schema().unwrap();
        let mut count = 0;
        for folder in ["scenarios", "scenarios/physics", "scenarios/twin", "selftests/guest"] {
            for entry in fs::read_dir(repository().join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_none_or(|extension| extension != "toml") {
                    continue;
                }
                let found = mistake_of(&schema, &fs::read_to_string(&path).unwrap());
                assert_eq!(found, None, "{}", path.display());
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
        assert_eq!(mistake_of(&schema, crate::TEMPLATE), None);
    }

    #[test]
    fn mistakes_violate_the_schema() {
        let schema = schema().unwrap();
        let mistake = |text: &str| mistake_of(&schema, text);
        assert_eq!(mistake(SMALL), None);
        for (from, to, said) in [
            ("mtu = 1500", "mut = 1500", "/topology: "),
            ("to = \"r\"", "", "/watch/0: without \"to\""),
            ("rate = \"1gbit\"", "rate = 1000000000", "/topology/links/0/rate"),
            ("sample = \"1ms\"", "sample = 1", "/sample: "),
            ("engine = \"uml\"", "engine = \"vmware\"", "/engine: "),
        ] {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL, "{from}");
            let found = mistake(&text).expect(to);
            assert!(found.contains(said), "{to}: {found}");
        }
        let variant = "extends = \"two-dc-1g\"\n";
        let fine = format!("{variant}[topology.links.0]\nrate = \"10gbit\"");
        assert_eq!(mistake(&fine), None);
        let typo = mistake(&format!("{variant}duraton = \"2s\"")).unwrap();
        assert!(typo.contains("'duraton'"), "{typo}");
    }
}
