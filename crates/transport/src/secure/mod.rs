//! Secure sessions, sans-io: packets travel in *envelopes*, whose content this module does not know.
//!
//! Two endpoints agree on keys by a Noise handshake (`Noise_IK_25519_AESGCM_SHA256`): the client ([`Initiator`]) knows the daemon's
//! public key, and the daemon ([`Responder`]) finds the client's among the authorised ones. Before it computes or stores anything
//! for a client, the daemon has it return a cookie, which shows that the client receives at its address:
//!
//! | envelope | from | contents behind the head ([`envelope`]) |
//! |---|---|---|
//! | initial | client | zeros; or the cookie, and the handshake's first message |
//! | cookie | daemon | the cookie for the client's address |
//! | response | daemon | the handshake's second message |
//! | data | both | a packet, sealed with AES-128-GCM, and its tag |
//! | refusal | daemon | nothing; the head has a code |
//!
//! No answer is longer than the packet that it answers, and no answer to an unknown client depends on the daemon's version.
//! Packets are sealed and opened by super-packets in the caller's memory, without allocations. Their numbers go through a replay
//! window ([`ReplayWindow`]); the keys are replaced after a number of packets or a time ([`channel`]).
//!
//! Time and randomness are arguments.

pub mod channel;
mod cookie;
pub mod envelope;
mod initiator;
mod keys;
mod noise;
mod replay;
mod responder;
#[cfg(test)]
mod tests;

pub use channel::{KeyLimits, KeyPhases, OVERHEAD_BYTES, Sealed};
pub use envelope::{Code, is_envelope};
pub use initiator::{Heard, Initiator};
pub use keys::{Authorized, AuthorizedKeys, KEY_BYTES, PrivateKey, PublicKey, RANDOM_BYTES};
pub use replay::ReplayWindow;
pub use responder::{Arrival, Opened, Rejection, Reply, Responder, ResponderConfig};
