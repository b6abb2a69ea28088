#include "net/tls_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/certificate_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

void ExpectRefused(const TlsFiles& files, ErrorCode code, const std::string& path, const char* why) {
  const auto context = MakeServerTlsContext(files);
  ASSERT_FALSE(context.ok()) << why;
  EXPECT_EQ(context.error().code, code) << context.error().message;
  EXPECT_THAT(context.error().message, HasSubstr(path));
  EXPECT_THAT(context.error().message, HasSubstr(why));
}

TEST(TlsContext, TakesOneFileOrTwo) {
  const TestCertificate made = MakeTestCertificate();
  EXPECT_TRUE(MakeServerTlsContext(WriteTestCertificate(made, "two")).ok());
  const std::string chain = made.certificate + MakeTestCertificate().certificate;
  EXPECT_TRUE(MakeServerTlsContext({WriteTestFile("both.pem", made.key + chain), ""}).ok());
  EXPECT_TRUE(MakeServerTlsContext({WriteTestFile("both.pem", chain + made.key), ""}).ok());
}

TEST(TlsContext, ErrorsNameTheFileAndWhatIsWrong) {
  const TestCertificate made = MakeTestCertificate();
  const TlsFiles good = WriteTestCertificate(made, "good");
  const TlsFiles other = WriteTestCertificate(MakeTestCertificate(), "other");
  const std::string missing = testing::TempDir() + "is_missing";
  const std::string text = WriteTestFile("text", "no certificate\n");
  const std::string torn =
      WriteTestFile("torn", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const std::string torn_chain = WriteTestFile(
      "torn_chain", made.certificate + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const std::string encrypted = WriteTestFile("encrypted", EncryptedKey(made.key, "password"));
  ExpectRefused({missing, good.key}, ErrorCode::kNotFound, missing, "No such file");
  ExpectRefused({good.certificate, missing}, ErrorCode::kNotFound, missing, "No such file");
  ExpectRefused({testing::TempDir(), good.key}, ErrorCode::kIo, testing::TempDir(), "directory");
  ExpectRefused({text, good.key}, ErrorCode::kMalformedFile, text, "no certificate in PEM form");
  ExpectRefused({torn, good.key}, ErrorCode::kMalformedFile, torn, "cannot be understood");
  ExpectRefused({torn_chain, good.key}, ErrorCode::kMalformedFile, torn_chain, "chain");
  ExpectRefused({good.certificate, text}, ErrorCode::kMalformedFile, text, "no private key");
  ExpectRefused({good.certificate, ""}, ErrorCode::kMalformedFile, good.certificate, "--ssl-keyfile");
  ExpectRefused({good.certificate, other.key}, ErrorCode::kInvalidArgument, other.key, "does not fit");
  ExpectRefused({good.certificate, encrypted}, ErrorCode::kUnsupported, encrypted, "encrypted");
}

TEST(TlsContext, ExpiredCertificatesAreWarnedOf) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(MakeServerTlsContext(WriteTestCertificate(MakeTestCertificate(-60), "expired")).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("expired"));
}

TEST(TlsContext, ClientsTakeAuthoritiesFromAFileOrTheSystem) {
  EXPECT_TRUE(MakeClientTlsContext("").ok());
  EXPECT_TRUE(MakeClientTlsContext(WriteTestCertificate(MakeTestCertificate(), "ca").certificate).ok());
  for (const std::string& path :
       {WriteTestFile("text", "no certificate\n"), testing::TempDir() + "missing"}) {
    const auto context = MakeClientTlsContext(path);
    ASSERT_FALSE(context.ok());
    EXPECT_EQ(context.error().param, "ssl-ca-certs");
    EXPECT_THAT(context.error().message, HasSubstr(path));
  }
}

}  // namespace
}  // namespace tandem
