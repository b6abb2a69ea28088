#include "net/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/param_error.h"
#include "net/tls_error.h"

namespace tandem {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freed<BIO_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Freed<X509_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;

constexpr size_t kMaxPemBytes = size_t{4} << 20;

Result<std::string> ReadPemFile(const std::string& path, const char* what) {
  const std::unique_ptr<std::FILE, Freed<std::fclose>> file(std::fopen(path.c_str(), "rb"));
  std::string text;
  size_t num_read = 0;
  if (file) {
    text.resize(kMaxPemBytes);
    num_read = std::fread(text.data(), 1, text.size(), file.get());
  }
  if (!file || std::ferror(file.get()) != 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return MakeError(code, "cannot read the {} {}: {}", what, path, std::generic_category().message(errno));
  }
  text.resize(num_read);
  text.shrink_to_fit();
  return text;
}

BioPtr BioOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// True at the end of a PEM text, where OpenSSL reports that nothing begins.
bool TakeEndOfPem() {
  const unsigned long error = ERR_peek_last_error();
  const bool is_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (is_end) ERR_clear_error();
  return is_end;
}

void WarnUnlessValidNow(const std::string& path, const X509* certificate) {
  const auto warn = [&](const ASN1_TIME* time, const char* what) {
    const BioPtr text(BIO_new(BIO_s_mem()));
    char* data = nullptr;
    ASN1_TIME_print(text.get(), time);
    const long size = BIO_get_mem_data(text.get(), &data);
    LogWarn("the certificate in {} {} {}: clients will refuse it", path, what,
            std::string_view(data, static_cast<size_t>(size)));
  };
  const ASN1_TIME* end = X509_get0_notAfter(certificate);
  const ASN1_TIME* begin = X509_get0_notBefore(certificate);
  if (X509_cmp_current_time(end) < 0) warn(end, "has expired on");
  if (X509_cmp_current_time(begin) > 0) warn(begin, "is valid only from");
}

Status UseCertificates(SSL_CTX* context, const std::string& path, const std::string& pem) {
  const BioPtr bio = BioOf(pem);
  const CertificatePtr own(PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr));
  if (!own) {
    const bool none = TakeEndOfPem();
    return MakeError(ErrorCode::kMalformedFile, "the certificate file {} {}: {}", path,
                     none ? "has no certificate in PEM form" : "cannot be understood",
                     none ? "-----BEGIN CERTIFICATE----- is missing" : TakeTlsErrorText());
  }
  if (SSL_CTX_use_certificate(context, own.get()) != 1) {
    return MakeError(ErrorCode::kUnsupported, "the certificate in {} cannot be used: {}", path,
                     TakeTlsErrorText());
  }
  for (;;) {
    CertificatePtr next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (!next) break;
    if (SSL_CTX_add0_chain_cert(context, next.get()) != 1) {
      return MakeError(ErrorCode::kUnsupported, "a certificate of the chain in {} cannot be used: {}", path,
                       TakeTlsErrorText());
    }
    static_cast<void>(next.release());  // the context's now
  }
  if (!TakeEndOfPem()) {
    return MakeError(ErrorCode::kMalformedFile, "a certificate of the chain in {} cannot be understood: {}",
                     path, TakeTlsErrorText());
  }
  WarnUnlessValidNow(path, own.get());
  return {};
}

int RefusePassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

Status UseKey(SSL_CTX* context, const TlsFiles& files, const std::string& path, const std::string& pem) {
  bool is_encrypted = false;
  const BioPtr bio = BioOf(pem);
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &RefusePassword, &is_encrypted));
  if (is_encrypted) {
    ERR_clear_error();
    return MakeError(ErrorCode::kUnsupported,
                     "the key in {} is encrypted, and nobody can be asked for its password: decrypt it with "
                     "openssl pkey",
                     path);
  }
  if (!key) {
    // OpenSSL calls a text without a key "unsupported".
    if (pem.find("PRIVATE KEY-----") != std::string::npos) {
      return MakeError(ErrorCode::kMalformedFile, "the key in {} cannot be understood: {}", path,
                       TakeTlsErrorText());
    }
    ERR_clear_error();
    return MakeError(ErrorCode::kMalformedFile, "the file {} has no private key in PEM form{}", path,
                     files.key.empty() ? ": name the key's file with --ssl-keyfile" : "");
  }
  if (X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) != 1) {
    ERR_clear_error();
    return MakeError(ErrorCode::kInvalidArgument, "the key in {} does not fit the first certificate in {}",
                     path, files.certificate);
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return MakeError(ErrorCode::kUnsupported, "the key in {} cannot be used: {}", path, TakeTlsErrorText());
  }
  return {};
}

// Those that offer no HTTP/1.1 at all are told so; those that offer nothing are not asked.
int ChooseProtocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned offered_size, void* /*argument*/) {
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_size, kProtocols, sizeof(kProtocols) - 1, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

Result<SslContextPtr> MakeContext(const SSL_METHOD* method) {
  SslContextPtr context(SSL_CTX_new(method));
  // Set here whatever the system's openssl.cnf says.
  const bool ok =
      context != nullptr && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
      SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_cipher_list(context.get(), "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
      SSL_CTX_set_ciphersuites(
          context.get(), "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256") == 1 &&
      SSL_CTX_set1_groups_list(context.get(), "X25519:P-256:P-384") == 1;
  if (!ok) {
    return MakeError(ErrorCode::kUnsupported, "OpenSSL cannot be set up: {}", TakeTlsErrorText());
  }
  SSL_CTX_set_security_level(context.get(), 2);
  // A connection that ends without a close_notify has ended like a plain one: HTTP knows whether it was
  // whole.
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Idle connections keep no buffers; a record comes with one call of the system.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context.get(), 1);
  return context;
}

}  // namespace

TlsContext::~TlsContext() {
  SSL_CTX_free(native_);
}

Result<std::shared_ptr<const TlsContext>> MakeServerTlsContext(const TlsFiles& files) {
  ERR_clear_error();
  TANDEM_ASSIGN_OR_RETURN(SslContextPtr context, MakeContext(TLS_server_method()));
  TANDEM_ASSIGN_OR_RETURN(const std::string certificates, ReadPemFile(files.certificate, "certificate file"));
  TANDEM_RETURN_IF_ERROR(UseCertificates(context.get(), files.certificate, certificates));
  if (files.key.empty()) {
    TANDEM_RETURN_IF_ERROR(UseKey(context.get(), files, files.certificate, certificates));
  } else {
    TANDEM_ASSIGN_OR_RETURN(const std::string key, ReadPemFile(files.key, "key file"));
    TANDEM_RETURN_IF_ERROR(UseKey(context.get(), files, files.key, key));
  }
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  // Tickets: clients keep the sessions, not the server.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context.get(), &ChooseProtocol, nullptr);
  return std::make_shared<const TlsContext>(context.release());
}

Result<std::shared_ptr<const TlsContext>> MakeClientTlsContext(const std::string& ca_file) {
  ERR_clear_error();
  TANDEM_ASSIGN_OR_RETURN(SslContextPtr context, MakeContext(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
    return std::make_shared<const TlsContext>(context.release());
  }
  auto pem = ReadPemFile(ca_file, "file of authorities");
  if (!pem.ok()) {
    Error error = pem.error();
    error.param = "ssl-ca-certs";
    return error;
  }
  if (SSL_CTX_load_verify_file(context.get(), ca_file.c_str()) != 1) {
    return MakeParamError(ErrorCode::kMalformedFile, "ssl-ca-certs",
                          "the file {} has no certificates in PEM form: {}", ca_file, TakeTlsErrorText());
  }
  return std::make_shared<const TlsContext>(context.release());
}

}  // namespace tandem
