// What OpenSSL says went wrong, as text and as error codes. Internal to this folder.
#pragma once

#include <openssl/ssl.h>

#include <boost/system/error_code.hpp>
#include <string>

namespace tandem {

// Of this thread's last failed call; forgets it.
std::string TakeTlsErrorText();

// Of a call for this connection that returned result and did not ask to be made again. eof where the other
// side has ended its sending.
boost::system::error_code TakeTlsError(const SSL* ssl, int result);

}  // namespace tandem
