//! `[context]`: the settings of [`ContextConfig`] that stand there, under the same names.

use std::net::SocketAddr;

use crossdock_runtime::{ContextConfig, Overflow};
use serde::Deserialize;

use super::values::{auto_or_packet, none_or_cpu, none_or_nice, within};

/// `[context]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContextSection {
    listen: SocketAddr,
    overflow: Overflow,
    #[serde(deserialize_with = "within::<_, u64, 65_536, 1_099_511_627_776>")]
    queue_bytes: u64,
    #[serde(deserialize_with = "within::<_, u32, 2, 65_536>")]
    window_packets: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 65_536>")]
    max_sessions: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    max_streams: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    max_subscriptions: u32,
    #[serde(deserialize_with = "within::<_, u32, 0, 1_000_000>")]
    linger_us: u32,
    spin_us: u32,
    #[serde(deserialize_with = "within::<_, u32, 100, 86_400_000>")]
    idle_timeout_ms: u32,
    #[serde(deserialize_with = "auto_or_packet")]
    packet_bytes: Option<u32>,
    #[serde(deserialize_with = "within::<_, u32, 512, 65_000>")]
    loopback_packet_bytes: u32,
    gso: bool,
    #[serde(deserialize_with = "none_or_cpu")]
    pin_cpu: Option<usize>,
    #[serde(deserialize_with = "none_or_nice")]
    nice: Option<i32>,
    #[serde(deserialize_with = "within::<_, u32, 65_536, 1_073_741_824>")]
    socket_buffer_bytes: u32,
    #[serde(deserialize_with = "within::<_, u64, 4_194_304, 1_099_511_627_776>")]
    buffer_bytes: u64,
}

impl Default for ContextSection {
    fn default() -> ContextSection {
        let defaults = ContextConfig::default();
        ContextSection {
            listen: defaults.listen,
            overflow: defaults.overflow,
            queue_bytes: defaults.queue_bytes,
            window_packets: defaults.window_packets,
            max_sessions: defaults.max_sessions,
            max_streams: defaults.max_streams,
            max_subscriptions: defaults.max_subscriptions,
            linger_us: defaults.linger_us,
            spin_us: defaults.spin_us,
            idle_timeout_ms: defaults.idle_timeout_ms,
            packet_bytes: defaults.packet_bytes,
            loopback_packet_bytes: defaults.loopback_packet_bytes,
            gso: defaults.gso,
            pin_cpu: defaults.pin_cpu,
            nice: defaults.nice,
            socket_buffer_bytes: defaults.socket_buffer_bytes,
            buffer_bytes: defaults.buffer_bytes,
        }
    }
}

impl ContextSection {
    /// Receives somewhere else.
    pub(crate) fn set_listen(&mut self, listen: SocketAddr) {
        self.listen = listen;
    }

    /// Where it receives.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Puts its settings into a context's.
    pub(super) fn apply(&self, config: &mut ContextConfig) {
        config.listen = self.listen;
        config.overflow = self.overflow;
        config.queue_bytes = self.queue_bytes;
        config.window_packets = self.window_packets;
        config.max_sessions = self.max_sessions;
        config.max_streams = self.max_streams;
        config.max_subscriptions = self.max_subscriptions;
        config.linger_us = self.linger_us;
        config.spin_us = self.spin_us;
        config.idle_timeout_ms = self.idle_timeout_ms;
        config.packet_bytes = self.packet_bytes;
        config.loopback_packet_bytes = self.loopback_packet_bytes;
        config.gso = self.gso;
        config.pin_cpu = self.pin_cpu;
        config.nice = self.nice;
        config.socket_buffer_bytes = self.socket_buffer_bytes;
        config.buffer_bytes = self.buffer_bytes;
    }
}
