#include "jinja/globals.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <string>
#include <utility>

#include "jinja/arguments.h"
#include "jinja/error.h"
#include "jinja/operators.h"
#include "jinja/print.h"

namespace tandem::jinja {
namespace {

constexpr int64_t kMaxRangeLength = 100'000;  // as jinja2's sandbox

Value Range(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("range", arguments, {"0", "1", "2"}, 1);
  auto range = std::make_shared<RangeData>();
  range->start = bound.Has(1) ? bound.Int(0, 0) : 0;
  range->stop = bound.Has(1) ? bound.Int(1, 0) : bound.Int(0, 0);
  range->step = bound.Int(2, 1);
  for (size_t i = 0; i < 3; ++i) {
    if (bound.Get(i).source() == Source::kContent) range->source = Source::kContent;
  }
  if (range->step == 0) throw TemplateError("range() arg 3 must not be zero");
  const bool forward = range->step > 0;
  if (forward ? range->start < range->stop : range->start > range->stop) {
    const auto low = static_cast<uint64_t>(forward ? range->start : range->stop);
    const auto high = static_cast<uint64_t>(forward ? range->stop : range->start);
    const uint64_t step =
        forward ? static_cast<uint64_t>(range->step) : 0 - static_cast<uint64_t>(range->step);
    const uint64_t length = (high - low - 1) / step + 1;
    if (length > static_cast<uint64_t>(kMaxRangeLength)) {
      throw TemplateError(
          fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kMaxRangeLength));
    }
    range->length = static_cast<int64_t>(length);
  }
  return Value::Heap(Kind::kRange, std::move(range));
}

// What dict(positional, **named) of Python makes.
std::shared_ptr<DictData> BuildDict(Runtime& runtime, const Arguments& arguments) {
  auto dict = std::make_shared<DictData>();
  if (arguments.positional.size() > 1) {
    throw TemplateError(fmt::format("dict expected at most 1 argument, got {}", arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      runtime.ChargeSteps(static_cast<int64_t>(source.dict().entries.size()));
      for (const auto& [key, value] : source.dict().entries) dict->Set(key, value);
    } else {
      for (const Value& pair : runtime.Iterate(source)) {
        const std::vector<Value> parts = runtime.Iterate(pair);
        if (parts.size() != 2) throw TemplateError("dictionary update sequence element has not length 2");
        dict->Set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict->Set(Value::String(SourcedText(name, arguments.source_of_names)), value);
  }
  return dict;
}

Value Dict(Runtime& runtime, const Arguments& arguments) {
  return Value::Dict(BuildDict(runtime, arguments));
}

Value Namespace(Runtime& runtime, const Arguments& arguments) {
  Value result = runtime.NewNamespace();
  const std::shared_ptr<DictData> dict = BuildDict(runtime, arguments);
  for (const auto& [key, value] : dict->entries) {
    if (key.is_string()) result.ns().attributes.Set(key.text(), value);
  }
  return result;
}

Value RaiseException(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  TemplateError error(ToStr(runtime, bound.Get(0)).bytes());
  error.raised_by_template = true;
  throw error;
}

Value StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::string format;
  const std::string& given = bound.Text(0);
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%' || i + 1 == given.size()) {
      format.push_back(given[i]);
    } else if (given[++i] == 'f') {  // Python's own
      format += fmt::format("{:06}", microseconds);
    } else if (given[i] != 'z' && given[i] != 'Z') {  // those of a time without a zone are empty
      format += {'%', given[i]};
    }
  }
  if (format.size() > 1024) throw TemplateError("strftime_now: format too long");
  format.push_back(' ');  // so that a result of no bytes always means too small a buffer
  std::tm local{};
  localtime_r(&seconds, &local);
  char buffer[65536];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  if (size == 0) throw TemplateError("strftime_now: result too long");
  return runtime.NewString(SourcedText(std::string(buffer, size - 1), bound.Get(0).source()));
}

// cycler(a, b): next() gives a, b, a, ...
struct CyclerData : ObjectData {
  std::string Describe() const override { return "<Cycler>"; }
  std::optional<Value> Attribute(Runtime& /*runtime*/, std::string_view name) override {
    if (name == "current") return items[position];
    if (name != "next" && name != "reset") return std::nullopt;
    const auto self = std::static_pointer_cast<CyclerData>(shared_from_this());
    const Value held = Value::Heap(Kind::kObject, self);
    if (name == "reset") {
      return MakeFunction(
          "reset",
          [self](Runtime& /*runtime*/, const Arguments& /*arguments*/) {
            self->position = 0;
            return Value::None();
          },
          held);
    }
    return MakeFunction(
        "next",
        [self](Runtime& /*runtime*/, const Arguments& /*arguments*/) {
          Value item = self->items[self->position];
          self->position = (self->position + 1) % self->items.size();
          return item;
        },
        held);
  }
  std::optional<Value> Call(Runtime& /*runtime*/, const Arguments& /*arguments*/) override {
    return std::nullopt;
  }

  std::vector<Value> items;
  size_t position = 0;
};

Value Cycler(Runtime& /*runtime*/, const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("at least one item has to be provided");
  auto data = std::make_shared<CyclerData>();
  data->depth = ContainerDepth(arguments.positional);
  data->items = arguments.positional;
  return Value::Heap(Kind::kObject, std::move(data));
}

Value Joiner(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("joiner", arguments, {"sep"}, 0);
  const SourcedText separator =
      bound.Has(0) ? ToStr(runtime, bound.Get(0)) : SourcedText(", ", Source::kTemplate);
  return MakeFunction("joiner", [separator, used = std::make_shared<bool>(false)](
                                    Runtime& call_runtime, const Arguments& call_arguments) {
    const BoundArguments none("joiner", call_arguments, {}, 0);
    return call_runtime.NewString(std::exchange(*used, true) ? separator : SourcedText());
  });
}

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  static constexpr std::pair<std::string_view, Value (*)(Runtime&, const Arguments&)> kGlobals[] = {
      {"range", Range},
      {"dict", Dict},
      {"namespace", Namespace},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
      {"cycler", Cycler},
      {"joiner", Joiner},
  };
  for (const auto& [global_name, function] : kGlobals) {
    if (global_name == name) return MakeFunction(std::string(name), function);
  }
  return std::nullopt;
}

}  // namespace tandem::jinja
