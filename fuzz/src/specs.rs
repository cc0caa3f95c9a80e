//! The checks of a handler's specification before anything is deployed.

use crossdock_engine::{HandlerProgram, HandlerSource, Natives};
use crossdock_format::{FieldSpec, FieldType, Format};
use crossdock_runtime::HandlerSpec;
use std::collections::BTreeMap;

/// Checks a specification as a daemon does: its figures, its program, its parameters for a format, and its rule for doing with
/// less. A refusal is in words.
pub fn examine(spec: &HandlerSpec) {
    let _ = spec.check();
    let source = match (&spec.sql, &spec.native) {
        (Some(sql), None) => HandlerSource::Sql(sql.clone()),
        (None, Some(native)) => HandlerSource::Native(native.clone()),
        _ => return,
    };
    let natives = Natives::built_in();
    let program = HandlerProgram {
        source,
        parameters: spec.parameters.clone(),
        null_for_errors: false,
        subscription_views: None,
        part: None,
    };
    let refused = program.check(&natives).err().map(|error| error.to_string());
    assert!(refused.is_none_or(|why| !why.is_empty()));
    let _ = program.reads();
    let Ok(made) = program.make(&natives, &numbers()) else { return };
    let with = |values: &BTreeMap<String, String>| {
        let mut all = spec.parameters.clone();
        all.extend(values.clone());
        made.parameters.prepare(&all).map(drop)
    };
    with(&BTreeMap::new()).expect("what it was made with");
    let _ = with(&spec.overload_parameters);
}

fn numbers() -> Format {
    let fields = [("number", FieldType::U64), ("grp", FieldType::I32), ("name", FieldType::String)];
    Format::natural(fields.map(|(name, ty)| FieldSpec::new(name, ty))).expect("a sound format")
}
