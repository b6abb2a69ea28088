#include "net/tls_error.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>

#include <boost/asio/error.hpp>
#include <cerrno>

namespace tandem {
namespace {

using boost::system::error_code;

// Boost means categories never to be destroyed through their base.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
class TlsCategory final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "tls"; }
  std::string message(int value) const override {
    const char* reason = ERR_reason_error_string(static_cast<unsigned long>(static_cast<unsigned>(value)));
    return reason == nullptr ? "TLS failed" : std::string("TLS: ") + reason;
  }
};

class CertificateCategory final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "certificate"; }
  std::string message(int value) const override {
    return std::string("the server's certificate is refused: ") + X509_verify_cert_error_string(value);
  }
};
#pragma GCC diagnostic pop

}  // namespace

std::string TakeTlsErrorText() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? "OpenSSL gives no reason" : reason;
  ERR_clear_error();
  return text;
}

error_code TakeTlsError(const SSL* ssl, int result) {
  static const TlsCategory tls_category;
  static const CertificateCategory certificate_category;
  const int system_error = errno;
  switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_ZERO_RETURN:
      return boost::asio::error::eof;
    case SSL_ERROR_SYSCALL:
      return system_error == 0 ? error_code(boost::asio::error::eof)
                               : error_code(system_error, boost::system::system_category());
    default:
      break;
  }
  const unsigned long error = ERR_peek_error();
  ERR_clear_error();
  const long verified = SSL_get_verify_result(ssl);
  if (ERR_GET_REASON(error) == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK) {
    return {static_cast<int>(verified), certificate_category};
  }
  // 0 would be no error.
  return {error == 0 ? -1 : static_cast<int>(error), tls_category};
}

}  // namespace tandem
