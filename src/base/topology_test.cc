#include "base/topology.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tandem {
namespace {

class TopologyTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  TopologyTest() {
    folder_ = std::filesystem::path(testing::TempDir()) / ("topology_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~TopologyTest() override {
    unsetenv("HWLOC_XMLFILE");
    std::filesystem::remove_all(folder_);
  }

  // What hwloc finds from now on: a machine as it describes one, with distances from node to node, by rows.
  void Pretend(const char* machine, std::vector<hwloc_uint64_t> distances) {
    hwloc_topology_t topology = nullptr;
    ASSERT_EQ(hwloc_topology_init(&topology), 0);
    ASSERT_EQ(hwloc_topology_set_synthetic(topology, machine), 0);
    ASSERT_EQ(hwloc_topology_load(topology), 0);
    std::vector<hwloc_obj_t> nodes;
    while (hwloc_obj_t node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                                         nodes.empty() ? nullptr : nodes.back())) {
      nodes.push_back(node);
    }
    if (!distances.empty()) {
      ASSERT_EQ(distances.size(), nodes.size() * nodes.size());
      hwloc_distances_add_handle_t handle = hwloc_distances_add_create(
          topology, nullptr, HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
      ASSERT_NE(handle, nullptr);
      ASSERT_EQ(hwloc_distances_add_values(topology, handle, static_cast<unsigned>(nodes.size()),
                                           nodes.data(), distances.data(), 0),
                0);
      ASSERT_EQ(hwloc_distances_add_commit(topology, handle, 0), 0);
    }
    ASSERT_EQ(hwloc_topology_export_xml(topology, Path("machine.xml").c_str(), 0), 0);
    hwloc_topology_destroy(topology);
    setenv("HWLOC_XMLFILE", Path("machine.xml").c_str(), 1);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(TopologyTest, NodesHaveCoresOfTheirOwnAndDistances) {
  Pretend("numa:2 core:3 pu:2", {10, 21, 22, 10});
  const Topology topology = DiscoverTopology();
  EXPECT_EQ(topology.num_numa_nodes, 2);
  EXPECT_EQ(topology.num_physical_cores, 6);
  EXPECT_EQ(topology.num_logical_cpus, 12);
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.numa_nodes[0].cores, (std::vector{0, 2, 4}));
  EXPECT_EQ(topology.numa_nodes[1].cores, (std::vector{6, 8, 10}));
  EXPECT_EQ(topology.numa_nodes[1].cpus, (std::vector{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(topology.numa_nodes[0].distances, (std::vector{10, 21}));
  EXPECT_EQ(topology.numa_nodes[1].distances, (std::vector{22, 10}));
}

TEST_F(TopologyTest, DistancesMayBeUnknown) {
  Pretend("numa:2 core:1 pu:1", {});
  for (const NumaNode& node : DiscoverTopology().numa_nodes) EXPECT_TRUE(node.distances.empty());
}

TEST_F(TopologyTest, ThisMachineHasANode) {
  const std::vector<NumaNode> all = NumaNodesAt({});
  ASSERT_FALSE(all.empty());
  const std::vector<NumaNode> first = NumaNodesAt({0});
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first.front().os_index, all.front().os_index);
}

TEST_F(TopologyTest, TheKernelSaysWhichNodeAPciDeviceIsNextTo) {
  std::filesystem::create_directories(Path("0000:3b:00.0"));
  std::ofstream(Path("0000:3b:00.0/numa_node")) << "1\n";
  EXPECT_EQ(NumaNodeOfPciDevice("0000:3B:00.0", Path("")), 1);
  EXPECT_EQ(NumaNodeOfPciDevice("0000:3c:00.0", Path("")), -1);
}

}  // namespace
}  // namespace tandem
