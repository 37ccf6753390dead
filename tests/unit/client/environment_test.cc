#include "client/src/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cco::client {
namespace {

using Values = std::map<std::string, std::string>;

absl::StatusOr<Environment> read(const Values& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

struct Good {
  Values variables;
  Environment expected;
};

// Goal    each launcher's variables are understood, with and without the optional ones.
// Method  a table of what the launchers set.
TEST(Environment, EveryLauncher) {
  const std::vector<Good> cases = {
      {{{"CCO_RANK", "1"}, {"CCO_SIZE", "4"}, {"CCO_JOB", "j7"}}, {1, 4, 1, 4, "cco", "j7"}},
      {{{"CCO_RANK", "5"}, {"CCO_SIZE", "8"}, {"CCO_LOCAL_RANK", "1"}, {"CCO_LOCAL_SIZE", "4"}},
       {5, 8, 1, 4, "cco", ""}},
      {{{"RANK", "3"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"TORCHELASTIC_RUN_ID", "r"}},
       {3, 4, 1, 2, "torchrun", "torchrun-r"}},
      {{{"RANK", "0"},
        {"WORLD_SIZE", "1"},
        {"TORCHELASTIC_RUN_ID", "none"},
        {"MASTER_ADDR", "h"},
        {"MASTER_PORT", "2"}},
       {0, 1, 0, 1, "torchrun", "torchrun-h.2"}},
      {{{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
        {"PMIX_NAMESPACE", "ns"}},
       {2, 3, 0, 1, "openmpi", "openmpi-ns"}},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
       {0, 2, 0, 2, "pmi", ""}},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "12.0"}},
       {1, 2, 1, 2, "pmi", "pmi-12.0"}},
      {{{"SLURM_PROCID", "9"},
        {"SLURM_NTASKS", "11"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NODEID", "2"},
        {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
        {"SLURM_JOB_ID", "8"},
        {"SLURM_STEP_ID", "1"}},
       {9, 11, 1, 3, "slurm", "slurm-8.1"}},
      // The first launcher of the list counts, not the first variable.
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "9"}, {"CCO_RANK", "1"}, {"CCO_SIZE", "2"}},
       {1, 2, 1, 2, "cco", ""}},
  };
  for (const Good& good : cases) {
    const auto found = read(good.variables);
    ASSERT_TRUE(found.ok()) << found.status();
    SCOPED_TRACE(good.expected.launcher + "/" + good.expected.job);
    EXPECT_EQ(found->rank, good.expected.rank);
    EXPECT_EQ(found->size, good.expected.size);
    EXPECT_EQ(found->local_rank, good.expected.local_rank);
    EXPECT_EQ(found->local_size, good.expected.local_size);
    EXPECT_EQ(found->launcher, good.expected.launcher);
    EXPECT_EQ(found->job, good.expected.job);
  }
}

// Goal    a variable that is set and wrong is an error that names it and its value; nothing falls
//         back.
// Method  break every variable in every way, and look for both in the message.
TEST(Environment, WrongVariablesAreNamed) {
  struct Bad {
    Values variables;
    std::string names;
  };
  const std::string tasks = "SLURM_STEP_TASKS_PER_NODE";
  const std::vector<Bad> cases = {
      {{{"CCO_RANK", "0"}}, "CCO_SIZE is not"},
      {{{"CCO_SIZE", "4"}}, "CCO_RANK is not"},
      {{{"RANK", "x"}, {"WORLD_SIZE", "4"}}, "RANK is 'x'"},
      {{{"RANK", ""}, {"WORLD_SIZE", "4"}}, "RANK is ''"},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "RANK is '-1'"},
      {{{"RANK", " 1"}, {"WORLD_SIZE", "4"}}, "RANK is ' 1'"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "4x"}}, "WORLD_SIZE is '4x'"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE is '99999999999'"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0'"},
      {{{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}, "PMI_RANK is 4 but PMI_SIZE is 4"},
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "OMPI_COMM_WORLD_LOCAL_RANK is 2 but OMPI_COMM_WORLD_LOCAL_SIZE is 2"},
      {{{"CCO_RANK", "0"}, {"CCO_SIZE", "2"}, {"CCO_LOCAL_RANK", "one"}},
       "CCO_LOCAL_RANK is 'one'"},
      {{{"CCO_RANK", "0"}, {"CCO_SIZE", "2"}, {"CCO_LOCAL_SIZE", "0"}}, "CCO_LOCAL_SIZE is '0'"},
      {{{"CCO_RANK", "0"}, {"CCO_SIZE", "2"}, {"CCO_JOB", std::string(64, 'j')}}, "CCO_JOB is"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {tasks, "2(x"}}, tasks + " is '2(x'"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {tasks, ""}}, tasks + " is ''"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {tasks, "2"}, {"SLURM_NODEID", "1"}},
       "SLURM_NODEID is 1"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {tasks, "2"}, {"SLURM_NODEID", "a"}},
       "SLURM_NODEID is 'a'"},
  };
  for (const Bad& bad : cases) {
    const auto found = read(bad.variables);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << bad.names;
    EXPECT_NE(std::string(found.status().message()).find(bad.names), std::string::npos)
        << found.status();
  }
}

// Goal    without a launcher the error says what was looked for.
TEST(Environment, NoLauncher) {
  const auto found = read({{"PATH", "/bin"}});
  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  for (const char* name :
       {"CCO_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    EXPECT_NE(std::string(found.status().message()).find(name), std::string::npos);
  }
}

// Goal    a job's name that is too long is shortened to the same on every rank, and to another for
//         another job.
// Method  two long names that differ in their last byte.
TEST(Environment, LongJobNamesAreHashed) {
  const auto job = [](char last) {
    Values variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
    variables["PMIX_NAMESPACE"] = std::string(200, 'n') + last;
    return read(variables)->job;
  };
  EXPECT_EQ(job('a'), job('a'));
  EXPECT_NE(job('a'), job('b'));
  EXPECT_LE(job('a').size(), 63u);
}

}  // namespace
}  // namespace cco::client
