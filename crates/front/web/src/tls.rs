//! Certificate and key of the server: given ones, or a pair that it makes itself at its first start.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use axum::{Extension, middleware::AddExtension};
use axum_server::{
    accept::Accept,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::either::Either;
use tower::Layer as _;

/// Files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// Chain of certificates, PEM.
    pub certificate: PathBuf,
    /// Key, PEM.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The pair in the folder of the history. Makes it, for the names of this host, if it is not there.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub(crate) fn own(state: &Path, address: IpAddr) -> io::Result<Self> {
        let folder = state.join("tls");
        let pair = Self {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
        };
        if pair.certificate.exists() && pair.key.exists() {
            return Ok(pair);
        }
        crate::server::make_private_folder(&folder)?;
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let mut names = vec![
            "localhost".to_owned(),
            host,
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        if !address.is_unspecified() {
            names.push(address.to_string());
        }
        names.retain(|name| !name.is_empty());
        names.sort();
        names.dedup();
        let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        write_private(&pair.key, &made.signing_key.serialize_pem())?;
        write_private(&pair.certificate, &made.cert.pem())?;
        Ok(pair)
    }

    /// Reads the pair, and the certificate of the authority that signs the certificates of clients.
    ///
    /// # Errors
    /// If a file cannot be read, or the key does not belong to the certificate.
    pub(crate) fn read(&self, authority: Option<&Path>) -> io::Result<Arc<ServerConfig>> {
        let certificates = certificates_in(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| in_file(&self.key, &e))?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let config = match authority {
            None => config.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates_in(path)? {
                    roots.add(certificate).map_err(|e| in_file(path, &e))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.allow_unauthenticated().build();
                config.with_client_cert_verifier(verifier.map_err(|e| in_file(path, &e))?)
            }
        };
        let config = config.with_single_cert(certificates, key);
        let mut config = config.map_err(|e| in_file(&self.certificate, &e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Configuration with the same certificate, for clients of HTTP/2.
pub(crate) fn of_http2(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

fn in_file(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

fn certificates_in(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path);
    let certificates = certificates.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|e| in_file(path, &e))?;
    match certificates.is_empty() {
        true => Err(in_file(path, &"has no certificate")),
        false => Ok(certificates),
    }
}

/// Accepts TLS connections, and notes whether the client has a certificate of the known authority.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor(pub(crate) RustlsAcceptor);

/// True if the client of a connection has a certificate of the known authority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HasCertificate(pub(crate) bool);

type Accepted<S> = <RustlsAcceptor as Accept<TcpStream, S>>::Stream;

impl<S: Send + 'static> Accept<TcpStream, S> for Acceptor {
    type Stream = Accepted<S>;
    type Service = AddExtension<S, HasCertificate>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            // The verifier has refused certificates of others.
            let certificates = stream.get_ref().1.peer_certificates();
            let known = HasCertificate(certificates.is_some_and(|all| !all.is_empty()));
            Ok((stream, Extension(known).layer(service)))
        })
    }
}

/// First byte of a TLS connection: content type `handshake` (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
/// Time in which a client has to send its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Accepts TLS connections and, by their first byte, connections without encryption.
#[derive(Clone, Debug)]
pub(crate) struct OptionalTls {
    acceptor: Acceptor,
}

/// True if a connection is encrypted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsEncrypted(pub(crate) bool);

impl OptionalTls {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Self {
        let config = RustlsConfig::from_config(config);
        Self {
            acceptor: Acceptor(RustlsAcceptor::new(config)),
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for OptionalTls {
    type Stream = Either<Accepted<S>, TcpStream>;
    type Service = AddExtension<AddExtension<S, HasCertificate>, IsEncrypted>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let acceptor = self.acceptor.clone();
        Box::pin(async move {
            let mut first = [0];
            timeout(FIRST_BYTE, stream.peek(&mut first)).await??;
            let is_encrypted = first[0] == HANDSHAKE;
            let (stream, service) = match is_encrypted {
                true => {
                    let (stream, service) = acceptor.accept(stream, service).await?;
                    (Either::Left(stream), service)
                }
                false => {
                    let service = Extension(HasCertificate(false)).layer(service);
                    (Either::Right(stream), service)
                }
            };
            Ok((stream, Extension(IsEncrypted(is_encrypted)).layer(service)))
        })
    }
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let part = path.with_extension("part");
    let _ = fs::remove_file(&part);
    let mut options = File::options();
    let mut file = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(part, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_pair_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let address = "192.0.2.7".parse().unwrap();
        let pair = CertificateFiles::own(folder.path(), address).unwrap();
        pair.read(None).unwrap();
        let text = fs::read(&pair.certificate).unwrap();
        CertificateFiles::own(folder.path(), address).unwrap();
        assert_eq!(fs::read(&pair.certificate).unwrap(), text);
        fs::write(&pair.key, "no key").unwrap();
        let error = pair.read(None).unwrap_err().to_string();
        assert!(error.contains("key.pem"), "{error}");
    }
}
