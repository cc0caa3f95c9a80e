//! `crossdock access`: the access rules, and what they would decide.

use crossdock_runtime::info::{AccessCheckInfo, AccessRuleInfo};

use crate::cli::{AccessCheck, AccessCommand, AccessQuestion, List};
use crate::failure::{Failure, Outcome};
use crate::http::client::Client;
use crate::lists::objects;
use crate::{http, out};

/// `crossdock access`.
pub(crate) fn run(arguments: &AccessCommand) -> Outcome {
    match &arguments.command {
        AccessQuestion::List(arguments) => list(arguments),
        AccessQuestion::Check(arguments) => check(arguments),
    }
}

fn list(arguments: &List) -> Outcome {
    let http::AccessRules { in_force, rules } = Client::new(&arguments.control)?.get("/v1/access")?;
    if arguments.json {
        return objects(&rules);
    }
    if !in_force {
        out::say("no access rules: whoever is let in may do everything ([[access]] in the configuration)");
        return Ok(());
    }
    out::print(rules.iter().map(rule_text).collect::<Vec<_>>().join("\n"))
}

/// A rule as the configuration has it: what it allows, one line each.
fn rule_text(rule: &AccessRuleInfo) -> String {
    let mut text = format!("{}\n", rule.identity);
    let lists = [
        ("publish", &rule.publish),
        ("subscribe", &rule.subscribe),
        ("convert", &rule.convert),
        ("handlers", &rule.handlers),
        ("mailboxes", &rule.mailboxes),
        ("route", &rule.route),
    ];
    for (name, list) in lists {
        text.extend(list.iter().map(|entry| format!("  {name:<14}  {entry}\n")));
    }
    text += &format!("  administration  {}\n", rule.administration);
    let quotas = [
        ("sessions", rule.max_sessions),
        ("streams", rule.max_streams),
        ("mailboxes", rule.max_mailboxes),
        ("subscriptions", rule.max_subscriptions),
    ];
    let quotas: Vec<String> = quotas.iter().filter_map(|(what, most)| Some(format!("{} {what}", (*most)?))).collect();
    if !quotas.is_empty() {
        text += &format!("  at most         {}\n", quotas.join(", "));
    }
    text
}

fn check(arguments: &AccessCheck) -> Outcome {
    let AccessCheck { identity, sql, publish, mailbox, route, answer } = arguments;
    let question = http::AccessCheck {
        identity: identity.clone(),
        sql: sql.clone(),
        publish: publish.clone(),
        mailbox: mailbox.clone(),
        route: route.clone(),
    };
    let info: AccessCheckInfo = Client::new(&answer.control)?.post("/v1/access/check", &question)?;
    match answer.json {
        true => out::print_json(&info)?,
        false => out::print(check_text(&info))?,
    }
    if info.allowed { Ok(()) } else { Err(Failure::failed(format!("refused for {}", info.caller))) }
}

fn check_text(info: &AccessCheckInfo) -> String {
    let mut text = format!("{}  {}\n", if info.allowed { "allowed" } else { "refused" }, info.caller);
    text += &format!("rule     {}\n", info.rule.as_deref().unwrap_or("none"));
    if let Some(view) = &info.view {
        text += &format!("sees     {view}\n");
    }
    if let Some(query) = &info.query {
        text += &format!("query    {query}\n");
    }
    if let Some(refusal) = &info.refusal {
        text += &format!("why      {}\n", refusal.replace('\n', "\n         "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_shown_by_what_it_allows() {
        let rule = AccessRuleInfo {
            identity: "key:desk".into(),
            publish: vec!["orders.*".into()],
            subscribe: vec!["B".into(), "SELECT a FROM A".into()],
            administration: "read".into(),
            max_streams: Some(4),
            ..AccessRuleInfo::default()
        };
        let wanted = "key:desk\n  publish         orders.*\n  subscribe       B\n  subscribe       SELECT a FROM A\n  \
                      administration  read\n  at most         4 streams\n";
        assert_eq!(rule_text(&rule), wanted);
    }

    #[test]
    fn a_decision_is_shown_with_its_rule_and_the_query_that_would_run() {
        let info = AccessCheckInfo {
            allowed: true,
            caller: "key desk".into(),
            rule: Some("key:desk".into()),
            view: Some("SELECT a FROM A".into()),
            query: Some("SELECT a FROM A WHERE a > 1".into()),
            refusal: None,
        };
        let wanted =
            "allowed  key desk\nrule     key:desk\nsees     SELECT a FROM A\nquery    SELECT a FROM A WHERE a > 1\n";
        assert_eq!(check_text(&info), wanted);
        let (caller, refusal) = ("user 5".into(), Some("no\nhint: b".into()));
        let refused = AccessCheckInfo { caller, refusal, ..AccessCheckInfo::default() };
        assert_eq!(check_text(&refused), "refused  user 5\nrule     none\nwhy      no\n         hint: b\n");
    }
}
