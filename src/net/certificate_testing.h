// Certificates made for tests.
#pragma once

#include <string>

#include "net/tls_context.h"

namespace tandem {

// A self-signed P-256 certificate for localhost and 127.0.0.1, and its key, as PEM.
struct TestCertificate {
  std::string certificate;
  std::string key;
};

// valid_s: seconds from now; it began a day before. Negative: expired.
TestCertificate MakeTestCertificate(long valid_s = 3600);
std::string EncryptedKey(const std::string& key, const char* password);

// Files name.crt and name.key in the tests' temporary folder.
TlsFiles WriteTestCertificate(const TestCertificate& certificate, const std::string& name);
std::string WriteTestFile(const std::string& name, const std::string& text);

}  // namespace tandem
