#include "controller/part_routes.h"

#include <gtest/gtest.h>

namespace myriad {
namespace {

TEST(PartRoutes, OnlyWhatTheManifestLists) {
  Manifest manifest;
  ManifestPart part;
  part.id.digest = sha256({});
  manifest.parts.push_back(part);
  manifest.files = {{.name = "tiktoken.model"}, {.name = "../etc/passwd"}, {.name = ".."}, {.name = "a/b"}};
  const PartRoutes routes("/cut", manifest);
  const std::string hex = part.id.hex();
  EXPECT_EQ(routes.find("/v1/manifest.json"), "/cut/manifest.json");
  EXPECT_EQ(routes.find("/v1/parts/" + hex + ".part"), part_path("/cut", part.id));
  EXPECT_EQ(routes.find("/v1/files/tiktoken.model"), "/cut/tiktoken.model");
  std::string other = hex;
  other[0] = other[0] == '0' ? '1' : '0';
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  for (const std::string& path :
       {std::string(), std::string("/"), std::string("/v1/"), std::string("/v1/manifest.json/"),
        std::string("/v1/manifest.json?x"), std::string("/v2/manifest.json"), std::string("/v1/files/"),
        std::string("/v1/files/.."), std::string("/v1/files/../etc/passwd"), std::string("/v1/files/a/b"),
        std::string("/v1/files/manifest.json"), std::string("/v1/files/tiktoken.model%00"),
        std::string("/v1/../v1/manifest.json"), "/v1/parts/" + hex, "/v1/parts/" + other + ".part",
        "/v1/parts/../" + hex + ".part", "/v1/parts/" + hex.substr(1) + "/.part", "//v1/parts/" + hex + ".part"})
    EXPECT_FALSE(routes.find(path)) << path;
  // However the digits are written, it is the same file, or none.
  if (const auto found = routes.find("/v1/parts/" + upper + ".part")) {
    EXPECT_EQ(*found, part_path("/cut", part.id));
  }
}

}  // namespace
}  // namespace myriad
