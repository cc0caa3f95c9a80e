//! The decision of this node on a source route, before any packet has taken it.

use super::{Access, Action, Caller};
use crate::config::ContextConfig;
use crate::info::AccessCheckInfo;
use crate::principal::Principal;
use crossdock_transport::route::{NodeId, SourceRoute};
use crossdock_transport::secure::PublicKey;

/// The names of this node and of its neighbours.
#[derive(Debug)]
pub(super) struct Neighbourhood {
    own: String,
    /// With their keys.
    neighbours: Vec<(String, PublicKey)>,
}

impl Neighbourhood {
    pub(super) fn new(config: &ContextConfig) -> Neighbourhood {
        let neighbours = config.neighbours.iter().filter_map(|node| Some((node.name.clone(), node.key?)));
        Neighbourhood { own: config.node.clone(), neighbours: neighbours.collect() }
    }

    fn key_of(&self, name: &str) -> Result<PublicKey, String> {
        let found = self.neighbours.iter().find(|(neighbour, _)| neighbour == name);
        found.map(|(_, key)| *key).ok_or_else(|| {
            format!(
                "node `{name}` is no neighbour of node `{}` (`route = true` in its [[node.peer]] section)",
                self.own
            )
        })
    }
}

impl Access {
    /// Decides on the part of this node in a route of the caller's packets, as the first of them would be decided on.
    ///
    /// # Errors
    /// The nodes are no route, or this one is not among them.
    pub(super) fn answer_route(&self, caller: &Caller, nodes: &[String]) -> Result<AccessCheckInfo, String> {
        let ids: Vec<NodeId> = nodes.iter().map(|name| NodeId::of_name(name)).collect();
        SourceRoute::new(&ids).map_err(|why| format!("`{}`: {why}", nodes.join(",")))?;
        let own = &self.neighbourhood.own;
        let place = nodes.iter().position(|node| node == own).ok_or_else(|| {
            format!("node `{own}` is not in the route `{}`: each of its nodes decides on its own part", nodes.join(","))
        })?;
        let info = |caller: &Caller, decided: Result<(), String>| {
            let rule = self.rules().and_then(|rules| rules.of(caller)).map(|rule| rule.identity.to_string());
            let (caller, refusal) = (caller.to_string(), decided.err());
            AccessCheckInfo { allowed: refusal.is_none(), caller, rule, refusal, ..AccessCheckInfo::default() }
        };
        // The right is that of the hop before: the client's at the first node.
        let before = place.checked_sub(1).and_then(|before| nodes.get(before));
        let hop = match before.map(|before| self.neighbourhood.key_of(before)).transpose() {
            Ok(key) => key.map_or_else(|| caller.clone(), |key| self.caller(Principal::Key(key))),
            Err(why) => return Ok(info(caller, Err(why))),
        };
        let Caller::Key { .. } = hop else {
            let why = format!("{hop} has no key, and packets with source routes come in secure sessions only");
            return Ok(info(&hop, Err(why)));
        };
        // Where the route ends, packets are taken from all neighbours; the session then has the rights of the client.
        let Some(next) = nodes.get(place + 1) else { return Ok(info(caller, Ok(()))) };
        let decided = self
            .neighbourhood
            .key_of(next)
            .and_then(|_| self.decide(&hop, Action::Route(next)).map_err(|denial| denial.0));
        Ok(info(&hop, decided.map(drop)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::super::{Identity, Rule, Rules};
    use super::*;
    use crate::config::{NodeAddress, SecurityConfig};
    use crate::managers::events::Events;
    use crossdock_transport::secure::{Authorized, KEY_BYTES, PrivateKey};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    fn public(first: u8) -> PublicKey {
        PrivateKey::from_random([first; KEY_BYTES]).public()
    }

    /// The access of node `middle`, between `west` and `east`, with rules that let the names send to the nodes.
    fn middle(rules: Option<&[(&str, &str)]>) -> Access {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7440));
        let neighbour =
            |(first, name): (u8, &str)| NodeAddress { name: name.into(), address, key: Some(public(first)) };
        let named = |(first, name): (u8, &str)| Authorized { key: public(first), name: name.into() };
        let rule = |(name, node): &(&str, &str)| Rule {
            route: vec![node.parse().unwrap()],
            ..Rule::new(Identity::Key((*name).into()))
        };
        let authorized = Arc::new([(1, "west"), (2, "east"), (3, "desk")].map(named).into_iter().collect());
        let config = ContextConfig {
            node: "middle".into(),
            neighbours: [(1, "west"), (2, "east")].map(neighbour).into(),
            access: rules.map(|rules| Arc::new(Rules::new(rules.iter().map(rule).collect()).unwrap())),
            security: SecurityConfig { authorized, ..SecurityConfig::default() },
            ..ContextConfig::default()
        };
        Access::new(&config, (Arc::default(), Events::default()))
    }

    fn check(access: &Access, identity: &str, route: &str) -> Result<AccessCheckInfo, String> {
        let nodes: Vec<String> = route.split(',').map(str::to_owned).collect();
        access.answer_route(&access.caller_of(&identity.parse().unwrap()).unwrap(), &nodes)
    }

    #[test]
    fn the_hop_before_needs_the_right_to_send_to_the_next_one() {
        let rules = [("west", "east"), ("desk", "w*")];
        let access = middle(Some(&rules));
        for (identity, route, caller, rule, refusal) in [
            ("desk", "west,middle,east", "key west", Some("key:west"), None),
            ("desk", "middle,west", "key desk", Some("key:desk"), None),
            ("desk", "middle,east", "key desk", Some("key:desk"), Some("route = [\"east\"]")),
            ("desk", "east,middle,west", "key east", None, Some("it has no access rule")),
            ("desk", "west,middle", "key desk", Some("key:desk"), None),
            (
                "desk",
                "south,middle,east",
                "key desk",
                Some("key:desk"),
                Some("`south` is no neighbour of node `middle`"),
            ),
            ("desk", "middle,south", "key desk", Some("key:desk"), Some("`south` is no neighbour of node `middle`")),
            ("uid:7", "middle,east", "user 7", None, Some("user 7 has no key")),
        ] {
            let info = check(&access, identity, route).unwrap();
            assert_eq!((&*info.caller, info.rule.as_deref()), (caller, rule), "{route}");
            assert_eq!(info.allowed, refusal.is_none(), "{route}: {info:?}");
            assert!(
                refusal.is_none_or(|words| info.refusal.as_ref().is_some_and(|why| why.contains(words))),
                "{info:?}"
            );
        }
        assert!(check(&middle(None), "desk", "middle,east").unwrap().allowed);
    }

    #[test]
    fn nodes_that_are_no_route_of_this_one_are_an_error() {
        let access = middle(None);
        for (route, words) in
            [("middle", "2 to 8 nodes"), ("middle,east,middle", "a loop"), ("west,east", "node `middle` is not in")]
        {
            let why = check(&access, "desk", route).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
