// Certificates and rules of TLS, read from files and shared by connections.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

struct ssl_ctx_st;

namespace tandem {

// PEM files. certificate: the server's own first, then those that lead to its authority. key: empty where the
// certificate's file has it too.
struct TlsFiles {
  std::string certificate;
  std::string key;

  bool given() const { return !certificate.empty(); }
};

// Does not change; any thread.
class TlsContext {
 public:
  explicit TlsContext(ssl_ctx_st* native) : native_(native) {}  // takes it
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* native() const { return native_; }

 private:
  ssl_ctx_st* native_;
};

// TLS 1.2 and 1.3, forward secrecy, session tickets, HTTP/1.1 by ALPN. Warns in the log of a certificate that
// is not valid now. Errors name the file: kNotFound, kIo, kMalformedFile, kUnsupported (an encrypted key),
// kInvalidArgument (the key is another certificate's).
Result<std::shared_ptr<const TlsContext>> MakeServerTlsContext(const TlsFiles& files);

// ca_file: PEM file of the authorities that servers' certificates are checked against; empty: the system's.
// Errors as above; param is "ssl-ca-certs".
Result<std::shared_ptr<const TlsContext>> MakeClientTlsContext(const std::string& ca_file);

}  // namespace tandem
