// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"log/slog"
	"strings"
	"unicode"

	"github.com/meshcni/meshcni/interception"
)

// Version is that of the protocol. It is the first element of every path.
const Version = "v1"

// MaxBody is how large the body of a request may be.
const MaxBody = 1 << 20

// The paths, below the version.
const (
	PodsPath    = "/" + Version + "/pods"
	StatusPath  = "/" + Version + "/status"
	LogsPath    = "/" + Version + "/logs"
	ResultsPath = "/" + Version + "/results"
)

// PodAnswer is the answer to a question about a pod.
type PodAnswer struct {
	Pod *interception.Pod `json:"pod"`
}

// ResultsAnswer is the answer to results that came with lines of a log, and were taken with them.
type ResultsAnswer struct {
	// Entries is how many lines were taken.
	Entries int `json:"entries"`
}

// ErrorAnswer is the answer to a request that failed.
type ErrorAnswer struct {
	Error Refusal `json:"error"`
}

// Refusal is why a request failed.
type Refusal struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Versions are those that the server speaks, beside ReasonVersion.
	Versions []string `json:"versions,omitempty"`
}

// Reason is what a client goes by, because several reasons have the same HTTP status.
type Reason string

// The reasons; docs/agent-socket.md says what they mean.
const (
	ReasonBadRequest Reason = "BadRequest"
	ReasonForbidden  Reason = "Forbidden"
	ReasonNotFound   Reason = "PodNotFound"
	ReasonStale      Reason = "StalePod"
	ReasonMethod     Reason = "MethodNotAllowed"
	ReasonTooLarge   Reason = "TooLarge"
	ReasonPath       Reason = "UnknownPath"
	ReasonVersion    Reason = "UnsupportedVersion"
	ReasonNotServed  Reason = "NotServed"
	ReasonFailed     Reason = "Failed"
	ReasonNotReady   Reason = "NotReady"
)

// IstioLevel is what Istio calls the level, or the next lower one that it has.
func IstioLevel(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	default:
		return "error"
	}
}

const maxQuoted = 512

// Quoted makes text from the other side fit for an error: printable, bounded and in quotes.
func Quoted(text string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
	if len(printable) > maxQuoted {
		printable = strings.ToValidUTF8(printable[:maxQuoted], "") + "..."
	}
	return `"` + printable + `"`
}
