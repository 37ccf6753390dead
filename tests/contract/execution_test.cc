#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/contract/contract_test.h"

namespace cco {
namespace {

using Code = absl::StatusCode;

// The same kernel for two kinds of driver: *place = value.
void store_on_host(void** arguments) {
  auto* place = *static_cast<uint32_t**>(arguments[0]);
  *place = *static_cast<uint32_t*>(arguments[1]);
}
constexpr uint32_t kStoreArguments[] = {sizeof(uint64_t), sizeof(uint32_t)};
constexpr HostFunction kHostFunctions[] = {{"store", store_on_host, kStoreArguments}};
constexpr std::string_view kStorePtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 place, .param .u32 value) {
  .reg .u64 %address;
  .reg .u32 %value;
  ld.param.u64 %address, [place];
  ld.param.u32 %value, [value];
  st.global.u32 [%address], %value;
  ret;
}
)";
constexpr std::string_view kNoCode = "\177ELF: what the fake takes for a code object";

absl::Span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class Execution : public ContractTest {
 protected:
  void SetUp() override {
    ContractTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
    ASSERT_OK(memory);
    auto area = map_area(gpu(), 0, *memory);
    ASSERT_OK(area);
    area_ = *std::move(area);
    ASSERT_OK(context(0).fill_zero(base(), granularity()));
  }
  void TearDown() override {
    area_.reset();
    ContractTest::TearDown();
  }
  uint64_t base() const { return area_->mapping.address(); }

  const KernelImage images_[2] = {{"ptx", bytes_of(kStorePtx)}, {"gfx942", bytes_of(kNoCode)}};
  const KernelModule module_ = {"contract", images_, kHostFunctions};

 private:
  std::optional<Area> area_;
};

// Goal    copies move what they are told to, between host and device and on the device, and zeroing
//         zeroes.
// Method  odd offsets and lengths; look at the neighbours.
TEST_P(Execution, CopiesAreExact) {
  ASSERT_OK(write(0, base() + 3, "abcdefg"));
  auto stream = context(0).create_stream(StreamUse::kKernels);
  ASSERT_OK(stream);
  ASSERT_OK((*stream)->copy(base() + 101, base() + 4, 5));
  ASSERT_OK((*stream)->synchronize());
  EXPECT_EQ(read(0, base() + 100, 7).value_or(""), std::string("\0bcdef\0", 7));
  ASSERT_OK(context(0).fill_zero(base() + 5, 2));
  EXPECT_EQ(read(0, base() + 3, 7).value_or(""), std::string("ab\0\0efg", 7));
}

// Goal    a stream tells the time between two marks.
// Method  a copy between them; nothing before they were passed.
TEST_P(Execution, MarksMeasure) {
  auto stream = context(0).create_stream(StreamUse::kKernels);
  ASSERT_OK(stream);
  EXPECT_FALSE((*stream)->elapsed_us().ok()) << "no mark was passed yet";
  EXPECT_TRUE(says((*stream)->mark(2), Code::kInvalidArgument, {"0 and 1"}));
  ASSERT_OK((*stream)->mark(0));
  ASSERT_OK((*stream)->copy(base() + granularity() / 2, base(), granularity() / 2));
  ASSERT_OK((*stream)->mark(1));
  ASSERT_OK((*stream)->synchronize());
  const auto elapsed = (*stream)->elapsed_us();
  ASSERT_OK(elapsed);
  EXPECT_GE(*elapsed, 0.0);
  EXPECT_LT(*elapsed, 10e6);
}

// Goal    the facts that kernels' deadlines and grids are computed from are there.
// Method  look at them.
TEST_P(Execution, ClockAndSizeAreKnown) {
  EXPECT_GE(context(0).clock_khz(), 1000u);
  EXPECT_GE(context(0).multiprocessor_count(), 1u);
  EXPECT_EQ(context(0).device(), 0);
}

// Goal    host memory can be given to kernels and taken back, and given again.
// Method  register a shared page twice; write it by the host, copy from its device address.
TEST_P(Execution, HostMemoryIsReachable) {
  constexpr size_t kPageBytes = 4096;
  void* page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  for (const char* text : {"once", "more"}) {
    const auto address = context(0).register_host(page, kPageBytes);
    ASSERT_OK(address);
    std::memcpy(page, text, 4);
    auto stream = context(0).create_stream(StreamUse::kKernels);
    ASSERT_OK(stream);
    ASSERT_OK((*stream)->copy(base(), *address, 4));
    ASSERT_OK((*stream)->synchronize());
    EXPECT_EQ(read(0, base(), 4).value_or(""), text);
    context(0).unregister_host(page);
  }
  ::munmap(page, kPageBytes);
}

// Goal    a word is stored behind what the stream did before it, in device memory and in registered
//         host memory, where the CPU sees it without asking the stream.
// Method  copy to host memory, then write a word there and look at it until it is there: the copy
//         must be there too. On CUDA and HIP the word of device memory is read back.
TEST_P(Execution, WordsFollowEarlierWork) {
  constexpr size_t kPageBytes = 4096;
  constexpr uint64_t kFirst = 0x0123456789abcdef;
  auto* page = static_cast<char*>(
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page, MAP_FAILED);
  const auto address = context(0).register_host(page, kPageBytes);
  ASSERT_OK(address);
  auto stream = context(0).create_stream(StreamUse::kKernels);
  ASSERT_OK(stream);
  ASSERT_OK((*stream)->write_word(base() + 8, kFirst));
  ASSERT_OK((*stream)->copy(*address, base() + 8, 8));
  ASSERT_OK((*stream)->write_word(*address + 8, 1));
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto* word = reinterpret_cast<const uint64_t*>(page + 8);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
    std::this_thread::yield();
  }
  uint64_t copied = 0;
  std::memcpy(&copied, page, sizeof copied);
  EXPECT_EQ(copied, kFirst);
  EXPECT_TRUE(
      says((*stream)->write_word(base() + 4, 1), Code::kInvalidArgument, {"multiple of 8"}));
  ASSERT_OK((*stream)->synchronize());
  context(0).unregister_host(page);
  ::munmap(page, kPageBytes);
}

// Goal    words of one call are stored in their order behind what the stream did before, wherever
//         they lie; a call that is refused stores none.
// Method  words in host memory and in device memory, the last one first seen by the CPU: the others
//         must be there then, and of two values for one place the second. Then a bad address at the
//         end, too many words, none.
TEST_P(Execution, WordsOfOneCallKeepTheirOrder) {
  constexpr size_t kPageBytes = 4096;
  auto* page = static_cast<uint64_t*>(
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page, MAP_FAILED);
  const auto address = context(0).register_host(page, kPageBytes);
  ASSERT_OK(address);
  auto stream = context(0).create_stream(StreamUse::kEngine);
  ASSERT_OK(stream);
  std::vector<StreamWord> words;
  for (uint64_t i = 1; i < kMaxStreamWords; ++i) {
    words.push_back({i % 2 == 0 ? base() + 8 * i : *address + 8 * (i % 9 + 1), i});
  }
  words.push_back({*address, 1});
  ASSERT_OK((*stream)->write_words(words));
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (__atomic_load_n(page, __ATOMIC_ACQUIRE) == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
    std::this_thread::yield();
  }
  for (uint64_t last = kMaxStreamWords - 1; last + 18 > kMaxStreamWords; last -= 2) {
    EXPECT_EQ(page[last % 9 + 1], last);  // Nine odd numbers have nine places.
  }
  uint64_t stored[kMaxStreamWords] = {};
  ASSERT_OK(context(0).copy_to_host(stored, base(), sizeof stored));
  for (uint64_t i = 2; i < kMaxStreamWords; i += 2) EXPECT_EQ(stored[i], i);

  const std::vector<StreamWord> bad = {{*address, 7}, {*address + 4, 7}};
  EXPECT_TRUE(says((*stream)->write_words(bad), Code::kInvalidArgument, {"multiple of 8"}));
  const std::vector<StreamWord> many(kMaxStreamWords + 1, StreamWord{*address, 7});
  EXPECT_TRUE(says((*stream)->write_words(many), Code::kInvalidArgument, {"65 words", "64"}));
  ASSERT_OK((*stream)->write_words({}));
  ASSERT_OK((*stream)->synchronize());
  EXPECT_EQ(*page, 1u);
  context(0).unregister_host(page);
  ::munmap(page, kPageBytes);
}

// Goal    where the driver does not store words to some memory, they arrive all the same, in order.
// Method  the fake runtime refuses the call, in the two ways that say so, and in one that does not.
TEST_P(Execution, WordsArriveWhereTheyAreRefused) {
  if (!is_hip()) return;  // Only the fake runtime can be told to.
  auto stream = context(0).create_stream(StreamUse::kKernels);
  ASSERT_OK(stream);
  for (const char* refusal : {"hipStreamWriteValue64:1:801", "hipStreamWriteValue64:1:1"}) {
    const ScopedVariable fail("FAKE_HIP_FAIL", refusal);
    ASSERT_OK(context(0).fill_zero(base(), 8));
    ASSERT_OK((*stream)->write_word(base(), 7));
    ASSERT_OK((*stream)->synchronize());
    uint64_t word = 0;
    ASSERT_OK(context(0).copy_to_host(&word, base(), sizeof word));
    EXPECT_EQ(word, 7u) << refusal;
  }
  {
    const ScopedVariable fail("FAKE_HIP_FAIL", "hipStreamWriteValue64:1:999");
    EXPECT_TRUE(says((*stream)->write_word(base(), 8), Code::kInternal, {"hipStreamWriteValue64"}));
  }
  const ScopedVariable fail("FAKE_HIP_FAIL", "hipStreamWriteValue64:2:999");
  ASSERT_OK(context(0).fill_zero(base(), 24));
  EXPECT_TRUE(says((*stream)->write_words({{base(), 1}, {base() + 8, 2}, {base() + 16, 3}}),
                   Code::kInternal, {"hipStreamWriteValue64", "write 2 to the word"}));
  uint64_t words[3] = {};
  ASSERT_OK(context(0).copy_to_host(words, base(), sizeof words));
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[2], 0u) << "none behind the one that failed";
}

// Goal    a kernel gets the arguments that were passed at launch, even if they change before it
//         runs.
// Method  launch a store, change the argument at once, look at what was stored. The fake runtime
//         has no GPU: it must say so rather than pretend.
TEST_P(Execution, AKernelKeepsItsArguments) {
  const auto function = context(0).load(module_, "store");
  ASSERT_OK(function);
  auto stream = context(0).create_stream(StreamUse::kKernels);
  ASSERT_OK(stream);
  for (const uint32_t expected : {7u, 8u}) {
    uint64_t place = base() + 16;
    uint32_t value = expected;
    void* arguments[] = {&place, &value};
    const absl::Status launched = (*stream)->launch(*function, {}, arguments);
    if (is_hip()) {
      EXPECT_TRUE(says(launched, Code::kFailedPrecondition,
                       {"hipModuleLaunchKernel", "hipErrorNotSupported"}));
      return;
    }
    ASSERT_OK(launched);
    place = 0;
    value = 0;
    ASSERT_OK((*stream)->synchronize());
    uint32_t stored = 0;
    ASSERT_OK(context(0).copy_to_host(&stored, base() + 16, sizeof stored));
    EXPECT_EQ(stored, expected);
  }
}

// Goal    asking for a kernel that is not there says what there is.
// Method  a module for other machines; a name that is not in it.
TEST_P(Execution, MissingKernelsAreNamed) {
  const KernelImage alien[] = {{"gfx000", bytes_of(kNoCode)}};
  const KernelModule module = {"alien", alien, {}};
  EXPECT_TRUE(says(context(0).load(module, "store").status(), Code::kFailedPrecondition,
                   {"alien", "gfx000"}));
  if (is_hip()) return;  // The fake takes any name.
  EXPECT_TRUE(
      says(context(0).load(module_, "absent").status(), Code::kNotFound, {"absent", "contract"}));
}

CCO_INSTANTIATE_CONTRACT(Execution);

}  // namespace
}  // namespace cco
