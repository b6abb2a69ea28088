#include "execute/int_inputs.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "device/host/host_device.h"

namespace tandem {
namespace {

TEST(IntInputsTest, ArriveWhereAddSaid) {
  const auto device = CreateHostDevice({.num_compute_threads = 1});
  const auto stream = device->CreateStream(StreamKind::kCompute, "inputs");
  IntInputs inputs = IntInputs::Allocate(device.get(), 5).value();
  const int32_t* first_address = nullptr;
  for (int32_t round = 0; round < 3; ++round) {
    inputs.Clear();
    const int32_t* three = inputs.Add(std::array<int32_t, 3>{round, 1, 2});
    const int32_t* none = inputs.Add({});
    const int32_t* two = inputs.Add(std::array<int32_t, 2>{8, 9 + round});
    inputs.Upload(*stream);
    stream->Synchronize();
    EXPECT_EQ(std::vector<int32_t>(three, three + 3), (std::vector<int32_t>{round, 1, 2}));
    EXPECT_EQ(std::vector<int32_t>(two, two + 2), (std::vector<int32_t>{8, 9 + round}));
    EXPECT_EQ(none, two);
    // Graphs rely on it.
    if (round == 0) first_address = three;
    EXPECT_EQ(three, first_address);
  }
}

TEST(IntInputsDeathTest, NoMoreThanThereIsRoomFor) {
  const auto device = CreateHostDevice({.num_compute_threads = 1});
  IntInputs inputs = IntInputs::Allocate(device.get(), 2).value();
  inputs.Add(std::array<int32_t, 2>{1, 2});
  EXPECT_DEATH(inputs.Add(std::array<int32_t, 1>{3}), "3 inputs");
}

}  // namespace
}  // namespace tandem
