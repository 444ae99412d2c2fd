// SPDX-License-Identifier: Apache-2.0

package exhaustion

import "sync/atomic"

// answered is this process's exit code plus one, once it has given its answer; 0 before. If threads
// run out after the answer, a second one would make the first unreadable. The Go runtime calls
// answerExhaustion with arguments of its own only, so this is a variable.
var answered int32 //nolint:gochecknoglobals // it belongs to the process, as its exit code does

// Answered notes that the plugin has answered, and its exit code. If threads run out afterwards,
// the process ends with that code, without another answer. It is for plugin.Options.
func Answered(code int) { atomic.StoreInt32(&answered, int32(code)+1) } //nolint:gosec // 0 or 1
