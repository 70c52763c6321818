#include "model/own_context.h"

#include <gtest/gtest.h>

namespace myriad {
namespace {

TEST(OwnContext, OnlyWhatGoesBeyondItIsSpokenOf) {
  EXPECT_EQ(beyond_own_context(128, 128), "");
  EXPECT_EQ(beyond_own_context(1 << 20, 0), "") << "unknown";
  const std::string said = beyond_own_context(129, 128);
  for (const char* words : {"129 positions", "beyond the 128", "within 128"})
    EXPECT_NE(said.find(words), std::string::npos) << said;
}

}  // namespace
}  // namespace myriad
