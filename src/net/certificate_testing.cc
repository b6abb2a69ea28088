#include "net/certificate_testing.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <fstream>
#include <functional>

namespace tandem {
namespace {

std::string PemText(const std::function<void(BIO*)>& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

}  // namespace

TestCertificate MakeTestCertificate(long valid_s) {
  constexpr long kDaySeconds = 86'400;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -kDaySeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), valid_s);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1,
                             0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  X509_add_ext(certificate, names, -1);
  X509_EXTENSION_free(names);
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  TestCertificate made{
      PemText([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); }),
      PemText([&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); }),
  };
  X509_free(certificate);
  EVP_PKEY_free(key);
  return made;
}

std::string EncryptedKey(const std::string& key, const char* password) {
  BIO* bio = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  EVP_PKEY* parsed = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  std::string text = PemText([&](BIO* out) {
    PEM_write_bio_PKCS8PrivateKey(out, parsed, EVP_aes_256_cbc(), password, 1, nullptr, nullptr);
  });
  EVP_PKEY_free(parsed);
  return text;
}

TlsFiles WriteTestCertificate(const TestCertificate& certificate, const std::string& name) {
  return {WriteTestFile(name + ".crt", certificate.certificate),
          WriteTestFile(name + ".key", certificate.key)};
}

std::string WriteTestFile(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace tandem
