//! The facts of a request's TLS session.

/// The TLS session of the connection over which a request arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The version, such as `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// The server name that the client has sent (SNI), in lower case.
    pub server_name: Option<String>,
    /// The protocol that both sides agreed on (ALPN), such as `h2` or `http/1.1`.
    pub alpn: Option<String>,
    /// True if the session resumes an earlier one.
    pub resumed: bool,
    /// The verified certificate of the client, if the server [requests one](crate::tls::ClientAuth) and the client has
    /// sent one.
    pub client: Option<ClientCertificate>,
}

/// The certificate of a client, issued by an authority that the server trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The subject in the notation of RFC 4514, such as `CN=alice,O=Example`.
    pub subject: Option<String>,
    /// The names that the certificate is valid for: DNS names, IP addresses, URIs, mail addresses.
    pub names: Vec<String>,
    /// The whole certificate in DER.
    pub der: Vec<u8>,
}
