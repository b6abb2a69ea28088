// Server-sent events out of a stream of bytes, however it is cut into pieces.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tandem {

// Not thread-safe. Of an event only its data is kept: its lines joined by line ends. Comments, other fields
// and events without data are passed over; lines end in LF, CR or CRLF.
class SseParser {
 public:
  // Calls on_data with the data of each event that these bytes complete; the view is valid during the call.
  void Feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);
  // Forgets what has come of an event that is not complete.
  void Reset();

 private:
  void EndLine(std::string_view line, const std::function<void(std::string_view data)>& on_data);

  std::string line_;  // of the line that is not complete
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;  // an LF that follows belongs to the same line end
};

}  // namespace tandem
