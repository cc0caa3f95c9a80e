//! `crossdock handler`, `handlers`, `plan` and `apply`: what is deployed, and how that is changed.

mod show;
mod spec;

use std::collections::BTreeMap;

use crossdock_engine::Natives;
use crossdock_runtime::info::PlanInfo;
use crossdock_runtime::{HandlerSpec, StateSpec};
use hyper::Method;

#[cfg(test)]
pub(crate) use self::show::tests as made_up;
pub(crate) use self::show::{chains, tree};
use crate::cli::{Apply, Handler, HandlerArguments, HandlerCommand, Handlers, How, SetStream};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::formats::segment;
use crate::http::client::Client;
use crate::http::{self, ChangeAnswer, MoveRequest, SetRequest, Wanted};
use crate::lists::{client, objects, reports};
use crate::quantity::counted;
use crate::table::{Side, Width, render};
use crate::{out, serve};

/// `crossdock handlers`.
pub(crate) fn list(arguments: &Handlers) -> Outcome {
    let Handlers { name, list } = arguments;
    if let Some(name) = name {
        let handler = client(list)?.get(&path_of(name))?;
        return if list.json { out::print_json(&handler) } else { out::print(show::whole(&handler)) };
    }
    let http::Handlers { handlers } = client(list)?.get("/v1/handlers")?;
    let empty = "no handlers: `crossdock handler deploy` creates one, or [[handler]] in the daemon's configuration";
    reports(list, &show::COLUMNS, &handlers, empty)?;
    if list.json {
        return Ok(());
    }
    for (handler, why) in handlers.iter().filter_map(|handler| Some((handler, handler.why.as_ref()?))) {
        out::say(format_args!("{} is {}: {why}", handler.name, handler.status));
    }
    Ok(())
}

/// `crossdock handler`.
pub(crate) fn run(arguments: &Handler) -> Outcome {
    match &arguments.command {
        HandlerCommand::Deploy(wanted) => deploy(wanted),
        HandlerCommand::Swap(wanted) => swap(wanted),
        HandlerCommand::Set(set) => {
            let parameters = parameters(&set.parameters)?;
            change(&set.how, Method::PATCH, &path_of(&set.name), &SetRequest { parameters })
        }
        HandlerCommand::Move(moved) => {
            let path = format!("{}/move", path_of(&moved.name));
            change(&moved.how, Method::POST, &path, &MoveRequest { place: moved.place.clone() })
        }
        HandlerCommand::Remove(removed) => change(&removed.how, Method::DELETE, &path_of(&removed.name), &()),
        HandlerCommand::Builtins(builtins) => match builtins.json {
            true => objects(&show::described(&Natives::built_in())),
            false => out::print(show::builtins(&Natives::built_in(), Width::of_stdout())),
        },
    }
}

fn deploy(wanted: &HandlerArguments) -> Outcome {
    if wanted.sql.is_none() && wanted.native.is_none() {
        return Err(Failure::usage(format!("`{}` has neither a query nor --native", wanted.name))
            .hint(format!("crossdock handler deploy {} 'SELECT * FROM A'", wanted.name)));
    }
    let spec = spec::of(HandlerSpec { name: wanted.name.clone(), ..HandlerSpec::default() }, wanted)?;
    change(&wanted.how, Method::POST, "/v1/handlers", &spec)
}

fn swap(wanted: &HandlerArguments) -> Outcome {
    let client = Client::new(&wanted.how.control)?;
    let Wanted { handlers } = client.get("/v1/wanted")?;
    let names: Vec<String> = handlers.iter().map(|spec| spec.name.clone()).collect();
    let Some(now) = handlers.into_iter().find(|spec| spec.name == wanted.name) else {
        let hint = http::did_you_mean(&wanted.name, names.iter().map(String::as_str), "handlers");
        return Err(Failure::failed(format!("there is no handler `{}`", wanted.name)).hint(hint));
    };
    change(&wanted.how, Method::PUT, &path_of(&wanted.name), &spec::of(now, wanted)?)
}

/// Parameters by name; that one has two values is an error.
fn parameters(given: &[(String, String)]) -> Outcome<BTreeMap<String, String>> {
    let mut by_name = BTreeMap::new();
    for (name, value) in given {
        if by_name.insert(name.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("parameter `{name}` is given twice")).hint("keep one of them"));
        }
    }
    Ok(by_name)
}

/// The path of one handler, whatever its name has in it.
pub(crate) fn path_of(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    format!("/v1/handlers/{}", name.bytes().map(escape).collect::<String>())
}

/// `crossdock streams set`.
pub(crate) fn set_state(arguments: &SetStream) -> Outcome {
    let SetStream { stream, key, no_key, max_keys, max_bytes, max_age, how } = arguments;
    let path = format!("/v1/streams/{}/state", segment(stream));
    if *no_key {
        return change(how, Method::DELETE, &path, &());
    }
    let (max_keys, max_bytes, max_age_ms) = (*max_keys, *max_bytes, *max_age);
    change(how, Method::PUT, &path, &StateSpec { key: key.clone(), max_keys, max_bytes, max_age_ms })
}

/// Asks for a change, and says what was done or would be.
fn change(how: &How, method: Method, path: &str, what: &impl serde::Serialize) -> Outcome {
    let How { dry_run, discard_state, json, control } = how;
    let path = format!("{path}?dry_run={dry_run}&discard_state={discard_state}");
    let answer = Client::new(control)?.change(method, &path, what)?;
    report(&answer, *json, "leave out --dry-run to make these changes")
}

/// `crossdock plan`.
pub(crate) fn plan(arguments: &Apply) -> Outcome {
    let next = format!("`crossdock apply {}` makes these changes", arguments.file.display());
    report(&come_to(arguments, true)?, arguments.json, &next)
}

/// `crossdock apply`.
pub(crate) fn apply(arguments: &Apply) -> Outcome {
    report(&come_to(arguments, false)?, arguments.json, "")
}

fn come_to(arguments: &Apply, dry_run: bool) -> Outcome<ChangeAnswer> {
    let Apply { file, keep, discard_state, control, .. } = arguments;
    let config = Config::read(file)?;
    let mut handlers = config.handlers();
    let client = Client::new(control)?;
    if *keep {
        let Wanted { handlers: kept } = client.get("/v1/wanted")?;
        handlers = serve::merged(kept, handlers);
    }
    let path = format!("/v1/wanted?dry_run={dry_run}&discard_state={discard_state}");
    client.change(Method::PUT, &path, &Wanted { handlers })
}

/// Says what was done, or would be; that it cannot be is a failure.
fn report(answer: &ChangeAnswer, json: bool, next: &str) -> Outcome {
    let ChangeAnswer { applied, plan, took_us, note } = answer;
    if json {
        out::print_json(answer)?;
    } else {
        out::print(changes_text(plan, Width::of_stdout()))?;
        plan.notes.iter().chain(note).for_each(out::say);
    }
    if !plan.refusals.is_empty() {
        let why = http::indented(&plan.refusals);
        return Err(Failure::failed(format!("the request is refused, and nothing changes:{why}")));
    }
    if json {
        return Ok(());
    }
    match (plan.changes.len(), applied, took_us) {
        (0, ..) => out::say("nothing to do: everything is as requested"),
        (number, true, Some(us)) => {
            let ms = *us as f64 / 1000.0;
            out::say(format_args!("done: {} in {ms:.1} ms", counted(number as u64, "change")));
        }
        (number, ..) => out::say(format_args!("{}, none made: {next}", counted(number as u64, "change"))),
    }
    Ok(())
}

fn changes_text(plan: &PlanInfo, width: Width) -> String {
    if plan.changes.is_empty() {
        return String::new();
    }
    let headings = [("change", Side::Left), ("handler", Side::Left), ("what", Side::Left)];
    let rows =
        plan.changes.iter().map(|change| vec![change.change.clone(), change.handler.clone(), change.what.clone()]);
    render(&headings, rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_runtime::info::ChangeInfo;

    #[test]
    fn a_name_in_a_path_is_escaped() {
        assert_eq!(path_of("late"), "/v1/handlers/late");
        assert_eq!(path_of("A late?/ä"), "/v1/handlers/A%20late%3F%2F%C3%A4");
    }

    #[test]
    fn a_refused_plan_fails_with_its_reasons_and_one_without_changes_does_not() {
        let mut answer = ChangeAnswer { applied: false, plan: PlanInfo::default(), took_us: None, note: None };
        assert!(report(&answer, false, "").is_ok());
        answer.plan.refusals = vec!["needs 310 ms/s".into(), "no context `x`".into()];
        let text = report(&answer, false, "").map_or_else(|failure| failure.text(), |()| String::new());
        assert!(text.contains("\n  needs 310 ms/s\n  no context `x`"), "{text}");
    }

    #[test]
    fn changes_fit_a_screen() {
        let change = ChangeInfo {
            change: "set_parameters".into(),
            handler: "late_departures_of_all_airports".into(),
            what: "from minutes=15 to minutes=30 on c-core-0; its state stays, and it takes 12.5 ms/s as before".into(),
        };
        let plan = PlanInfo { changes: vec![change], ..PlanInfo::default() };
        let text = changes_text(&plan, Width::Columns(80));
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
        assert_eq!(changes_text(&PlanInfo::default(), Width::Columns(80)), "");
    }

    #[test]
    fn a_parameter_has_one_value() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parameters(&[pair("a", "1"), pair("b", "2")]).map(|all| all.len()).ok(), Some(2));
        assert!(
            parameters(&[pair("a", "1"), pair("a", "2")]).is_err_and(|why| why.text().contains("`a` is given twice"))
        );
    }
}
