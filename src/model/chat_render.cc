#include "model/chat_render.h"

#include <utility>

namespace myriad::chat {
namespace {

// The only control tokens a picture's text may have. All names of special tokens begin with '<' or '[', so text without
// these yields none: a caller cannot smuggle a message's end in as a picture.
bool is_safe_image_prompt(std::string_view prompt) {
  for (std::size_t at = 0; at < prompt.size();) {
    bool media = false;
    for (const std::string_view token : {"<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|media_pad|>"}) {
      if (prompt.substr(at).starts_with(token)) {
        at += token.size();
        media = true;
        break;
      }
    }
    if (media) continue;
    if (prompt[at] == '<' || prompt[at] == '[') return false;
    ++at;
  }
  return true;
}

}  // namespace

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool truthy(const Json* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number()) return value->get<double>() != 0;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return !value->empty();
}

Result<std::string> optional_string(const Json* value, std::string_view what) {
  if (value == nullptr) return std::string{};
  if (!value->is_string()) {
    return fail(Code::invalid_argument, "rendering a chat: {} is of type {}, a string is expected", what,
                value->type_name());
  }
  return value->get<std::string>();
}

Result<bool> boolean_of(const Json& request, const char* key, bool otherwise) {
  const Json* value = member(request, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    return fail(Code::invalid_argument, "rendering a chat: {} is of type {}, true or false is expected", key,
                value->type_name());
  }
  return value->get<bool>();
}

Result<bool> thinking_of(const Json& request) {
  const Json* value = member(request, "thinking");
  if (value == nullptr || !value->is_object()) return boolean_of(request, "thinking", true);
  MYRIAD_TRY(const std::string type, optional_string(member(*value, "type"), "thinking.type"));
  if (type == "enabled") return true;
  if (type == "disabled") return false;
  return fail(Code::invalid_argument, "rendering a chat: thinking.type is '{}', 'enabled' or 'disabled' is expected",
              type);
}

Result<const Json*> messages_of(const Json& request) {
  if (!request.is_object()) {
    return fail(Code::invalid_argument,
                "rendering a chat: the request is of type {}, an object with 'messages' is expected",
                request.type_name());
  }
  const Json* messages = member(request, "messages");
  if (messages == nullptr || !messages->is_array()) {
    return fail(Code::invalid_argument, "rendering a chat: 'messages' is {}, a list is expected",
                messages == nullptr ? "missing" : messages->type_name());
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    const Json* role = member(message, "role");
    if (role == nullptr || !role->is_string()) {
      return fail(Code::invalid_argument,
                  "rendering a chat: messages[{}] has no role; system, user, assistant or tool is expected", i);
    }
    const auto& name = role->get_ref<const std::string&>();
    if (name != "system" && name != "user" && name != "assistant" && name != "tool") {
      return fail(Code::invalid_argument,
                  "rendering a chat: messages[{}] has the role '{}'; system, user, assistant or tool is expected", i,
                  name);
    }
  }
  return messages;
}

Result<const Json*> tools_of(const Json& object, std::string_view where) {
  const Json* tools = member(object, "tools");
  if (!truthy(tools)) return nullptr;
  const auto all_objects = [](const Json& list) {
    for (const Json& tool : list) {
      if (!tool.is_object()) return false;
    }
    return true;
  };
  if (!tools->is_array() || !all_objects(*tools)) {
    return fail(Code::invalid_argument, "rendering a chat: {} is not a list of objects", where);
  }
  return tools;
}

Result<std::string> tool_choice_of(const Json& request) {
  const Json* choice = member(request, "tool_choice");
  if (choice == nullptr || choice->is_object()) return std::string("auto");
  MYRIAD_TRY(std::string name, optional_string(choice, "tool_choice"));
  if (name != "auto" && name != "none" && name != "required") {
    return fail(Code::invalid_argument,
                "rendering a chat: tool_choice is '{}'; auto, none, required or an object is expected", name);
  }
  return name;
}

Result<const Json*> function_of(const Json& call, std::string_view where) {
  const Json* function = &call;
  if (call.is_object()) {
    if (const auto found = call.find("function"); found != call.end()) function = &*found;
  }
  const Json* name = member(*function, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return fail(Code::invalid_argument, "rendering a chat: {} has no function name", where);
  }
  return function;
}

Result<ImagePrompts> ImagePrompts::of(const Json& request) {
  ImagePrompts images;
  const Json* list = member(request, "image_prompts");
  if (list == nullptr) return images;
  if (!list->is_array()) return fail(Code::invalid_argument, "rendering a chat: image_prompts is not a list");
  images.prompts_.emplace();
  for (const Json& prompt : *list) {
    if (!prompt.is_string() || !is_safe_image_prompt(prompt.get_ref<const std::string&>())) {
      return fail(Code::invalid_argument,
                  "rendering a chat: image_prompts[{}] is not a text whose only control tokens are media tokens",
                  images.prompts_->size());
    }
    images.prompts_->push_back(prompt.get<std::string>());
  }
  return images;
}

Result<std::string> ImagePrompts::next() {
  if (!prompts_) return std::string(kImagePlaceholder);
  if (used_ == prompts_->size()) {
    return fail(Code::invalid_argument, "rendering a chat: it has more pictures than the {} image_prompts",
                prompts_->size());
  }
  return (*prompts_)[used_++];
}

Status ImagePrompts::all_used() const {
  if (!prompts_ || used_ == prompts_->size()) return {};
  return fail(Code::invalid_argument, "rendering a chat: it has {} pictures but {} image_prompts", used_,
              prompts_->size());
}

Status SegmentWriter::text(std::string_view text) {
  if (!images_.given()) {
    plain(text);
    return {};
  }
  for (;;) {
    const std::size_t at = text.find(kImagePlaceholder);
    plain(text.substr(0, at));
    if (at == std::string_view::npos) return {};
    MYRIAD_TRY(const std::string image, images_.next());
    control(image);
    text.remove_prefix(at + kImagePlaceholder.size());
  }
}

Status SegmentWriter::content(const Json* content, std::string_view where) {
  if (content == nullptr) return {};
  if (content->is_string()) return text(content->get_ref<const std::string&>());
  if (!content->is_array()) {
    return fail(Code::invalid_argument,
                "rendering a chat: {}.content is of type {}, a string or a list of parts is expected", where,
                content->type_name());
  }
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    MYRIAD_TRY(const std::string type,
               optional_string(member(part, "type"), fmt::format("{}.content[{}].type", where, i)));
    if (type == "image" || type == "image_url") {
      MYRIAD_TRY(const std::string image, images_.next());
      control(image);
      continue;
    }
    const Json* words = member(part, "text");
    if (words == nullptr || !words->is_string()) {
      return fail(
          Code::invalid_argument,
          "rendering a chat: {}.content[{}] is neither a text part with a 'text' nor a picture (its type is '{}')",
          where, i, type);
    }
    MYRIAD_TRY_STATUS(text(words->get_ref<const std::string&>()));
  }
  return {};
}

Result<std::vector<Segment>> SegmentWriter::finish() && {
  MYRIAD_TRY_STATUS(images_.all_used());
  return std::move(segments_);
}

}  // namespace myriad::chat
