//! The handshake `Noise_IK_25519_AESGCM_SHA256`: the state machine is `snow`'s, AES-GCM and SHA-256 are `ring`'s, X25519 is
//! `curve25519-dalek`'s, and the random bytes are the caller's.

use super::keys::{KEY_BYTES, PrivateKey, PublicKey, public_of};
use curve25519_dalek::montgomery::MontgomeryPoint;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};

const PATTERN: &str = "Noise_IK_25519_AESGCM_SHA256";
const TAG_BYTES: usize = 16;
/// Bytes of the first message: an ephemeral key, the client's key sealed, an empty payload sealed.
pub(super) const FIRST_MESSAGE_BYTES: usize = KEY_BYTES + (KEY_BYTES + TAG_BYTES) + TAG_BYTES;
/// Bytes of the payload of the second message: the daemon's index.
const SECOND_PAYLOAD_BYTES: usize = 4;
/// Bytes of the second message: an ephemeral key, the payload sealed.
pub(super) const SECOND_MESSAGE_BYTES: usize = KEY_BYTES + SECOND_PAYLOAD_BYTES + TAG_BYTES;

/// The secrets that both sides have after the handshake.
pub(super) struct Secrets {
    /// Of what the client seals.
    pub(super) of_client: [u8; KEY_BYTES],
    /// Of what the daemon seals.
    pub(super) of_daemon: [u8; KEY_BYTES],
}

/// The client's side, once the first message is sent.
pub(super) struct Started(HandshakeState);

/// The client's first message to the daemon of a key. `prologue` is authenticated with it, `random` is used for nothing else.
pub(super) fn start(
    private: &PrivateKey,
    daemon: &PublicKey,
    prologue: &[u8],
    random: [u8; KEY_BYTES],
) -> Option<(Started, [u8; FIRST_MESSAGE_BYTES])> {
    let builder = builder(random)?.prologue(prologue).ok()?;
    let builder = builder.local_private_key(private.bytes()).ok()?.remote_public_key(daemon.bytes()).ok()?;
    let mut state = builder.build_initiator().ok()?;
    let mut message = [0; FIRST_MESSAGE_BYTES];
    let written = state.write_message(&[], &mut message).ok()?;
    (written == FIRST_MESSAGE_BYTES).then_some((Started(state), message))
}

impl Started {
    /// Takes the daemon's answer: its index, and the secrets. After a message that is not the answer, this goes on waiting for it.
    pub(super) fn finish(&mut self, message: &[u8; SECOND_MESSAGE_BYTES]) -> Option<(u32, Secrets)> {
        let mut payload = [0; SECOND_MESSAGE_BYTES];
        let read = self.0.read_message(message, &mut payload).ok()?;
        let index = payload[..read].try_into().map(u32::from_le_bytes).ok()?;
        Some((index, secrets(&mut self.0)))
    }
}

/// The daemon's side, once the first message is read.
pub(super) struct Received(HandshakeState);

/// Takes a client's first message: its key, which the handshake has proved to be its own.
pub(super) fn receive(
    private: &PrivateKey,
    prologue: &[u8],
    message: &[u8; FIRST_MESSAGE_BYTES],
    random: [u8; KEY_BYTES],
) -> Option<(Received, PublicKey)> {
    let builder = builder(random)?.prologue(prologue).ok()?.local_private_key(private.bytes()).ok()?;
    let mut state = builder.build_responder().ok()?;
    state.read_message(message, &mut [0; FIRST_MESSAGE_BYTES]).ok()?;
    let key = state.get_remote_static()?.try_into().ok()?;
    Some((Received(state), PublicKey::from_bytes(key)))
}

impl Received {
    /// The answer, with the daemon's index in it, and the secrets.
    pub(super) fn answer(mut self, index: u32) -> Option<([u8; SECOND_MESSAGE_BYTES], Secrets)> {
        let mut message = [0; SECOND_MESSAGE_BYTES];
        let written = self.0.write_message(&index.to_le_bytes(), &mut message).ok()?;
        (written == SECOND_MESSAGE_BYTES).then(|| (message, secrets(&mut self.0)))
    }
}

fn secrets(state: &mut HandshakeState) -> Secrets {
    let (of_client, of_daemon) = state.dangerously_get_raw_split();
    Secrets { of_client, of_daemon }
}

fn builder<'a>(random: [u8; KEY_BYTES]) -> Option<Builder<'a>> {
    Some(Builder::with_resolver(PATTERN.parse().ok()?, Box::new(Primitives(random))))
}

/// The primitives, and the random bytes of the ephemeral key.
struct Primitives([u8; KEY_BYTES]);

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(X25519::default()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha256(digest::Context::new(&SHA256))) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::new(AesGcm(None)) as Box<dyn Cipher>)
    }
}

/// Random bytes for one key.
struct Once(Option<[u8; KEY_BYTES]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let random = self.0.take().filter(|random| random.len() == bytes.len()).ok_or(Error::Rng)?;
        bytes.copy_from_slice(&random);
        Ok(())
    }
}

#[derive(Default)]
struct X25519 {
    private: [u8; KEY_BYTES],
    public: [u8; KEY_BYTES],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, private: &[u8]) {
        if let Ok(private) = private.try_into() {
            (self.private, self.public) = (private, public_of(&private));
        }
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut private = [0; KEY_BYTES];
        random.try_fill_bytes(&mut private)?;
        self.set(&private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk().ok_or(Error::Dh)?;
        let shared = MontgomeryPoint(*public).mul_clamped(self.private).to_bytes();
        // A point of small order, which gives every key the same secret.
        if shared == [0; KEY_BYTES] {
            return Err(Error::Dh);
        }
        out.get_mut(..KEY_BYTES).ok_or(Error::Dh)?.copy_from_slice(&shared);
        Ok(())
    }
}

struct Sha256(digest::Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        SHA256_OUTPUT_LEN
    }

    fn reset(&mut self) {
        self.0 = digest::Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..SHA256_OUTPUT_LEN].copy_from_slice(self.0.clone().finish().as_ref());
    }
}

struct AesGcm(Option<LessSafeKey>);

impl AesGcm {
    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    fn encrypt(&self, number: u64, associated: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (sealed, rest) = out.split_at_mut(plain.len());
        sealed.copy_from_slice(plain);
        let tag = self
            .0
            .as_ref()
            .and_then(|key| key.seal_in_place_separate_tag(AesGcm::nonce(number), Aad::from(associated), sealed).ok());
        // `snow` sets a key first, and has no messages of gigabytes: a message without its tag would be refused.
        let Some(tag) = tag else { return 0 };
        rest[..TAG_BYTES].copy_from_slice(tag.as_ref());
        plain.len() + TAG_BYTES
    }

    fn decrypt(&self, number: u64, associated: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::Decrypt)?;
        let mut opened = sealed.to_vec();
        let plain =
            key.open_in_place(AesGcm::nonce(number), Aad::from(associated), &mut opened).map_err(|_| Error::Decrypt)?;
        out.get_mut(..plain.len()).ok_or(Error::Decrypt)?.copy_from_slice(plain);
        Ok(plain.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn key(hex: &str) -> [u8; KEY_BYTES] {
        bytes(hex).try_into().unwrap()
    }

    /// A test vector of Cacophony, the Noise implementation in Haskell.
    #[test]
    fn the_handshake_and_its_keys_are_those_of_another_implementation() {
        let daemon = key("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893");
        let daemons_public = key("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62");
        assert_eq!(public_of(&daemon), daemons_public);
        let clients = key("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1");
        let prologue = b"John Galt";
        let random = key("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a");
        let builder = builder(random).unwrap().prologue(prologue).unwrap().local_private_key(&clients).unwrap();
        let mut client = builder.remote_public_key(&daemons_public).unwrap().build_initiator().unwrap();
        let random = key("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b");
        let builder = self::builder(random).unwrap().prologue(prologue).unwrap().local_private_key(&daemon).unwrap();
        let mut responder = builder.build_responder().unwrap();
        let (mut message, mut payload) = ([0; 256], [0; 256]);
        let mut pass = |from: &mut HandshakeState, to: &mut HandshakeState, plain: &[u8]| {
            let written = from.write_message(plain, &mut message).unwrap();
            let read = to.read_message(&message[..written], &mut payload).unwrap();
            assert_eq!(&payload[..read], plain);
            message[..written].to_vec()
        };
        let first = pass(&mut client, &mut responder, b"Ludwig von Mises");
        assert_eq!(
            first,
            bytes(
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444e417bc55c7a8166c993356c1be41ef67818a292426f\
                 301556c7f26b21d25ddb097153891a9a956cff47b83e63ad8d701c1342c209cff1ca5ecd43402762ac249e3bd3a4c0a145fe07cb5dae\
                 28ea13a3"
            )
        );
        let second = pass(&mut responder, &mut client, b"Murray Rothbard");
        assert_eq!(
            second,
            bytes(
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843af2ccf9972e22afc67aeafcd25162f7f98c363b7762e\
                 3e4cb7d272e39f27a5"
            )
        );
        let (ours, theirs) = (secrets(&mut client), secrets(&mut responder));
        assert_eq!((ours.of_client, ours.of_daemon), (theirs.of_client, theirs.of_daemon));
        let seal = |secret: &[u8; KEY_BYTES], plain: &[u8]| {
            let (mut cipher, mut out) = (AesGcm(None), [0; 64]);
            cipher.set(secret);
            let written = cipher.encrypt(0, &[], plain, &mut out);
            out[..written].to_vec()
        };
        let third = bytes("66acfc92e3197de166809e6d4d5d003dcc819a84bc3522ca53c9d9");
        assert_eq!(seal(&ours.of_client, b"F. A. Hayek"), third);
        let fourth = bytes("71f89aa6533a6de70b0826864dd75f60806ee40170c16290189eb3");
        assert_eq!(seal(&ours.of_daemon, b"Carl Menger"), fourth);
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        let dh = X25519 { private: [1; KEY_BYTES], public: [0; KEY_BYTES] };
        assert!(dh.dh(&[0; KEY_BYTES], &mut [0; KEY_BYTES]).is_err());
    }
}
