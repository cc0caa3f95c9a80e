//! TLS of the control API: the daemon's certificate, which is read again when its files change, and what a command trusts.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::watched::Watched;
use crate::failure::{Failure, Outcome};
use crate::keyfile::access_of_others;

/// The first byte of a TLS connection: that of a handshake's record.
pub(super) const FIRST_BYTE: u8 = 0x16;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

/// The daemon's certificate and key, out of two files.
pub(crate) type TlsFiles = Watched<Arc<ServerConfig>>;

/// Reads both files.
///
/// # Errors
/// One cannot be read or has something else, the key is not kept secret, or is another certificate's.
pub(crate) fn read(certificate: PathBuf, key: PathBuf) -> Outcome<TlsFiles> {
    Watched::read("certificate", vec![certificate.clone(), key.clone()], move || server_config(&certificate, &key))
}

/// For a connection that begins now.
pub(super) fn acceptor(files: &TlsFiles) -> TlsAcceptor {
    files.value().into()
}

fn server_config(certificate: &Path, key_file: &Path) -> Outcome<Arc<ServerConfig>> {
    let unfit = |why: &dyn fmt::Display| {
        Failure::usage(format!(
            "cannot use the certificate in {} with the key in {}: {why}",
            certificate.display(),
            key_file.display()
        ))
    };
    let (chain, key) = (certificates(certificate)?, private_key(key_file)?);
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unfit(&error))?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => unfit(&"they do not belong together"),
        error => unfit(&error),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates of a PEM file; one at least.
fn certificates(path: &Path) -> Outcome<Vec<CertificateDer<'static>>> {
    let refused = |why: &dyn fmt::Display| {
        Failure::usage(format!("cannot use the certificate in {}: {why}", path.display()))
            .hint("it is a PEM file, with the lines `-----BEGIN CERTIFICATE-----` and `-----END CERTIFICATE-----`")
    };
    let text = std::fs::read(path).map_err(|error| refused(&error))?;
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    match all.map_err(|error| refused(&error))? {
        none if none.is_empty() => Err(refused(&"it has no certificate")),
        all => Ok(all),
    }
}

fn private_key(path: &Path) -> Outcome<PrivateKeyDer<'static>> {
    let refused = |why: &dyn fmt::Display| Failure::usage(format!("cannot use the key in {}: {why}", path.display()));
    if let Some(others) = access_of_others(path).map_err(|error| refused(&error))? {
        return Err(refused(&others)
            .hint(format!("`chmod 600 {}`, and make another key if this one may be known", path.display())));
    }
    let text = std::fs::read(path).map_err(|error| refused(&error))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => refused(&"it has no private key in PEM form (unencrypted)"),
        error => refused(&error),
    })
}

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertificatePin([u8; 32]);

impl CertificatePin {
    fn of(certificate: &CertificateDer<'_>) -> CertificatePin {
        CertificatePin(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for CertificatePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for CertificatePin {
    type Err = String;

    /// Reads 64 hexadecimal digits, perhaps with a colon behind each two, as `openssl x509 -fingerprint` has them.
    fn from_str(text: &str) -> Result<CertificatePin, String> {
        let digits: Vec<u32> = text.chars().filter(|c| *c != ':').map_while(|c| c.to_digit(16)).collect();
        let bytes: Vec<u8> =
            digits.chunks_exact(2).filter_map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect();
        let has_digits_only = digits.len() == text.chars().filter(|c| *c != ':').count();
        match bytes.try_into() {
            Ok(bytes) if has_digits_only && digits.len() == 64 => Ok(CertificatePin(bytes)),
            _ => Err("a SHA-256 is 64 hexadecimal digits: `openssl x509 -in FILE -noout -fingerprint -sha256` prints \
                      that of a certificate"
                .to_owned()),
        }
    }
}

/// Takes the one certificate with this SHA-256, whatever its names and its dates.
#[derive(Debug)]
struct Pinned {
    pin: CertificatePin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = CertificatePin::of(end_entity);
        if found == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!("its certificate is another one than --pin names: its SHA-256 is {found}")))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificates that a command trusts: the one certificate of a pin, or those that the authorities in a file have signed.
///
/// # Errors
/// Neither is named, or the file has no certificates.
pub(super) fn connector(pin: Option<CertificatePin>, authorities: Option<&Path>) -> Outcome<TlsConnector> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(Failure::failed)?;
    let builder = match (pin, authorities) {
        (Some(pin), _) => builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { pin, provider })),
        (None, Some(path)) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            if roots.is_empty() {
                return Err(Failure::usage(format!("cannot read a certificate in {}", path.display())));
            }
            builder.with_root_certificates(roots)
        }
        (None, None) => {
            return Err(Failure::usage("https:// needs --ca or --pin: nothing says which certificates to trust").hint(
                "--ca FILE has the certificates of authorities, or the daemon's own (those of the system are often in \
                 /etc/ssl/certs/ca-certificates.crt); --pin is the SHA-256 of the daemon's certificate",
            ));
        }
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

/// Why a handshake with the daemon of this host failed, and what would correct it.
pub(super) fn explained(error: &io::Error, host: &str) -> (String, Option<String>) {
    let said = |why: &str, hint: &str| (why.to_owned(), Some(hint.to_owned()));
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                said("it ended the TLS handshake", "the daemon's log has more at level debug")
            }
            _ => (error.to_string(), None),
        };
    };
    match error {
        Error::General(why) => (why.clone(), None),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => said(
            "it does not use TLS",
            "write http:// instead of https://, or set `tls_cert` under [control] of its configuration",
        ),
        Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => said(
                "no authority in the file that --ca names has signed its certificate",
                "--ca takes the certificate of the authority that has, or --pin the SHA-256 of the daemon's certificate",
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => said(
                "its certificate has expired",
                "renew it at the daemon (`tls_cert` under [control]), which takes a changed file within some seconds",
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                said("its certificate is not valid yet", "compare the clocks of both machines")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
                format!("its certificate is not for `{host}`"),
                Some(format!(
                    "ask it by a name of its certificate, or make one with {host} in its subjectAltName ({error})"
                )),
            ),
            error => (format!("its certificate cannot be trusted: {error}"), None),
        },
        error => (format!("the TLS handshake failed: {error}"), None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const CERTIFICATE: &str = include_str!("../../tests/tls/daemon.pem");
    const KEY: &str = include_str!("../../tests/tls/daemon.key");

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("a.pem"), directory.path().join("a.key"));
        std::fs::write(&certificate, CERTIFICATE).unwrap();
        std::fs::write(&key, KEY).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        (directory, certificate, key)
    }

    #[test]
    fn a_changed_certificate_comes_into_force_and_one_that_does_not_fit_does_not() {
        let (_directory, certificate, key) = place();
        let files = read(certificate.clone(), key.clone()).unwrap();
        let config = || Arc::as_ptr(&files.value());
        let first = config();
        files.look();
        assert_eq!(config(), first, "nothing has changed");
        std::fs::write(&certificate, include_str!("../../tests/tls/ca.pem")).unwrap();
        files.look();
        assert_eq!(config(), first);
        assert!(files.reported().is_some_and(|why| why.contains("do not belong together")));
        std::fs::remove_file(&certificate).unwrap();
        files.look();
        assert_eq!(config(), first);
        std::fs::write(&certificate, include_str!("../../tests/tls/elsewhere.pem")).unwrap();
        files.look();
        assert!(config() != first && files.reported().is_none());
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let (directory, certificate, key) = place();
        let other = directory.path().join("other");
        let refused = |certificate: &Path, key: &Path| {
            read(certificate.to_owned(), key.to_owned()).map_err(|failure| failure.text()).unwrap_err()
        };
        let why = refused(&other, &key);
        assert!(why.contains("cannot use the certificate in") && why.contains("other: No such file"), "{why}");
        let why = refused(&key, &key);
        assert!(why.contains("a.key: it has no certificate") && why.contains("BEGIN CERTIFICATE"), "{why}");
        let why = refused(&certificate, &other);
        assert!(why.contains("cannot use the key in") && why.contains("other: No such file"), "{why}");
        std::fs::write(&other, KEY).unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o604)).unwrap();
        let why = refused(&certificate, &other);
        assert!(why.contains("every user of this machine has access") && why.contains("chmod 600"), "{why}");
        std::fs::write(&key, CERTIFICATE).unwrap();
        let why = refused(&certificate, &key);
        assert!(why.contains("a.key: it has no private key"), "{why}");
    }

    #[test]
    fn a_pin_is_read_as_tools_print_it() {
        let pin = "00ff".repeat(16);
        let colons: Vec<&str> = pin.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap()).collect();
        let read = |text: &str| text.parse::<CertificatePin>().map(|pin| pin.to_string());
        for text in [pin.clone(), pin.to_uppercase(), colons.join(":")] {
            assert_eq!(read(&text).as_deref(), Ok(pin.as_str()));
        }
        for text in ["", "00ff", &format!("{pin}00"), &pin.replace("ff", "fg"), &format!("{pin}x")] {
            assert!(read(text).is_err_and(|why| why.contains("64 hexadecimal digits")), "{text}");
        }
    }
}
