//! TLS as clients of a load use it.

use std::sync::Arc;

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    version::{TLS12, TLS13},
};
use wb_model::http::{HttpTls, HttpVersion, TlsVersion};

use crate::Files;

/// Sessions that a thread keeps for later connections.
const SESSIONS: usize = 4096;

/// HTTP/2 in a handshake: RFC 9113 section 3.2.
pub(crate) const ALPN: &[u8] = b"h2";

/// What all connections of a job have in common.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: ClientConfig,
    name: ServerName<'static>,
}

/// For loads of servers whose certificates nobody has signed.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
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

impl Tls {
    /// # Errors
    /// Certificates that cannot be used, a name that is none.
    pub(crate) fn new(
        job: &HttpTls,
        version: HttpVersion,
        host: &str,
        files: &dyn Files,
    ) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let versions = match job.version {
            None => &[&TLS13, &TLS12][..],
            Some(TlsVersion::V12) => &[&TLS12],
            Some(TlsVersion::V13) => &[&TLS13],
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|e| format!("TLS: {e}"))?;
        let mut config = match job.verify {
            true => {
                let path = job.authorities.as_deref().unwrap_or(SYSTEM);
                let pem = files.read(path)?;
                let mut roots = RootCertStore::empty();
                for one in CertificateDer::pem_slice_iter(&pem) {
                    let one = one.map_err(|e| format!("{path}: {e}"))?;
                    // One of many that this library does not know is no reason to refuse the rest.
                    let _ = roots.add(one);
                }
                if roots.is_empty() {
                    return Err(format!("{path}: it holds no certificate that can be used"));
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            false => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
                .with_no_client_auth(),
        };
        if version == HttpVersion::V2 {
            config.alpn_protocols = vec![ALPN.to_vec()];
        }
        // Each thread has sessions of its own.
        config.resumption = Resumption::disabled();
        let name = job.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("{name:?} is no name that TLS could ask for"))?;
        Ok(Self { config, name })
    }

    /// What the connections of one thread share: sessions of its own.
    pub(crate) fn of_thread(&self, resume: bool) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        if resume {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        Arc::new(config)
    }

    /// # Errors
    /// The library's.
    pub(crate) fn connect(&self, config: &Arc<ClientConfig>) -> Result<ClientConnection, Error> {
        let mut connection = ClientConnection::new(Arc::clone(config), self.name.clone())?;
        // A request is written as a whole; what the socket does not take waits here.
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}

/// Where Debian, and most others, keep the authorities of the system.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";
