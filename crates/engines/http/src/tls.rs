//! TLS for clients of a load.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use quinn_proto::crypto::rustls::QuicClientConfig;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use wb_model::http::{HttpTls, HttpVersion, TlsVersion};

use crate::{RequestFiles, quic::Quic};

/// Sessions that a thread keeps for later connections.
const SESSIONS: usize = 4096;

/// HTTP/2 in a handshake: RFC 9113 section 3.2.
pub(crate) const ALPN: &[u8] = b"h2";

/// HTTP/3 in QUIC's handshake: RFC 9114 section 3.1.
const ALPN_OF_QUIC: &[u8] = b"h3";

/// State shared by all connections of a job.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: ClientConfig,
    name: ServerName<'static>,
    verifier: Arc<dyn ServerCertVerifier>,
}

/// Counts verified certificates. A resumed session verifies none; QUIC shows resumption in no other way.
#[derive(Debug)]
struct CountingVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    seen: Arc<AtomicU64>,
}

impl ServerCertVerifier for CountingVerifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.verifier
            .verify_server_cert(end, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Accepts any certificate, for servers with self-signed ones.
#[derive(Debug)]
struct AcceptAnyVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Prefers AES-128 like browsers: most servers use the client's preference, and their effort for it is part of the
/// measurement.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let name = suite.suite().as_str().unwrap_or_default();
        !name.contains("AES_128")
    });
    provider
}

/// The certificates of a PEM file, the client's first.
fn certificates(
    path: &str,
    files: &dyn RequestFiles,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = files.read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain.map_err(|e| format!("{path}: {e}"))? {
        chain if chain.is_empty() => Err(format!("{path}: no certificate found")),
        chain => Ok(chain),
    }
}

impl Tls {
    /// # Errors
    /// Fails for unusable certificates, or an invalid server name.
    pub(crate) fn new(
        job: &HttpTls,
        version: HttpVersion,
        host: &str,
        files: &dyn RequestFiles,
    ) -> Result<Self, String> {
        let provider = Arc::new(provider());
        let versions = match job.version {
            _ if version == HttpVersion::V3 => &[&TLS13][..],
            None => &[&TLS13, &TLS12],
            Some(TlsVersion::V12) => &[&TLS12],
            Some(TlsVersion::V13) => &[&TLS13],
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|e| format!("TLS: {e}"))?;
        let verifier: Arc<dyn ServerCertVerifier> = match job.verify {
            true => {
                let path = job.authorities.as_deref().unwrap_or(SYSTEM);
                let pem = files.read(path)?;
                let mut roots = RootCertStore::empty();
                for one in CertificateDer::pem_slice_iter(&pem) {
                    let one = one.map_err(|e| format!("{path}: {e}"))?;
                    // One certificate that this library does not support is no reason to refuse the rest.
                    let _ = roots.add(one);
                }
                if roots.is_empty() {
                    return Err(format!("{path}: no usable certificate found"));
                }
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|e| format!("{path}: {e}"))?
            }
            false => Arc::new(AcceptAnyVerifier(provider)),
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier));
        let mut config = match &job.certificate {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let chain = certificates(path, files)?;
                let key_path = job.key.as_deref().unwrap_or(path);
                let key = PrivateKeyDer::from_pem_slice(&files.read(key_path)?);
                let key = key.map_err(|e| format!("{key_path}: {e}"))?;
                let key = builder.crypto_provider().key_provider.load_private_key(key);
                let own = CertifiedKey::new(chain, key.map_err(|e| format!("{key_path}: {e}"))?);
                // The check cannot read certificates of X.509 version 1; the server decides about them.
                if let Err(Error::InconsistentKeys(_)) = own.keys_match() {
                    return Err(format!(
                        "{key_path}: the key does not match the certificate in {path}"
                    ));
                }
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
        };
        config.alpn_protocols = match version {
            HttpVersion::V11 => Vec::new(),
            HttpVersion::V2 => vec![ALPN.to_vec()],
            HttpVersion::V3 => vec![ALPN_OF_QUIC.to_vec()],
        };
        // Each thread has separate sessions.
        config.resumption = Resumption::disabled();
        let name = job.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("{name:?} is not a server name that TLS allows"))?;
        let made = Self {
            config,
            name,
            verifier,
        };
        if version == HttpVersion::V3 {
            QuicClientConfig::try_from(made.config.clone()).map_err(|e| format!("QUIC: {e}"))?;
        }
        Ok(made)
    }

    /// Configuration shared by the connections of one thread, with separate sessions.
    pub(crate) fn of_thread(&self, resume: bool) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        if resume {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        Arc::new(config)
    }

    /// Configuration of one thread for QUIC; `None` if no QUIC cipher is available, which was checked at the start.
    pub(crate) fn quic_of_thread(&self, resume: bool, now: u64) -> Option<Quic> {
        let seen = Arc::new(AtomicU64::new(0));
        let mut config = ClientConfig::clone(&self.of_thread(resume));
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(CountingVerifier {
                verifier: Arc::clone(&self.verifier),
                seen: Arc::clone(&seen),
            }));
        let config = QuicClientConfig::try_from(config).ok()?;
        let name = self.name.to_str().into_owned();
        Some(Quic::new(config, name, seen, now))
    }

    /// # Errors
    /// Returns the library's error.
    pub(crate) fn connect(&self, config: &Arc<ClientConfig>) -> Result<ClientConnection, Error> {
        let mut connection = ClientConnection::new(Arc::clone(config), self.name.clone())?;
        // Requests are written as a whole; data that the socket does not accept is buffered here.
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}

/// Path of the system's certificate authorities on Debian and most other distributions.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

#[cfg(test)]
mod tests {
    use rustls::CipherSuite::{self, *};

    #[test]
    fn short_keys_are_preferred_and_nothing_is_left_out() {
        let suites = super::provider().cipher_suites;
        let names: Vec<CipherSuite> = suites.iter().map(|s| s.suite()).collect();
        let place = |suite| names.iter().position(|name| *name == suite);
        assert!(place(TLS13_AES_128_GCM_SHA256) < place(TLS13_AES_256_GCM_SHA384));
        assert!(place(TLS13_AES_128_GCM_SHA256).is_some());
        assert_eq!(names.len(), super::ring::DEFAULT_CIPHER_SUITES.len());
    }
}
