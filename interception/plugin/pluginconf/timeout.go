// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"fmt"
	"log/slog"
	"math"
	"time"
)

// Timeout is how long an ADD takes at most, or another time, as a Go duration such as "30s". The empty one is a default.
type Timeout string

// Duration is the time, or [DefaultTimeout] if the text is none.
func (t Timeout) Duration() time.Duration { return t.Or(DefaultTimeout) }

// Or is the time, or a default if the text is none.
func (t Timeout) Or(otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(string(t)); err == nil && d > 0 {
		return d
	}
	return otherwise
}

// Validate says whether it is a time above zero, or empty.
func (t Timeout) Validate() error { return t.validateAs("timeout") }

// validateAs is Validate for the key that it is the value of.
func (t Timeout) validateAs(key string) error {
	if t == "" {
		return nil
	}
	if d, err := time.ParseDuration(string(t)); err != nil || d <= 0 {
		return fmt.Errorf(`%s is %q, and should be a time such as "30s"`, key, string(t))
	}
	return nil
}

// LevelNone is above everything that is logged.
const LevelNone = slog.Level(math.MaxInt)

// ParseLevel reads a level by Istio's name of it. Empty is info, fatal the same as error.
func ParseLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error", "fatal":
		return slog.LevelError, nil
	case "none":
		return LevelNone, nil
	default:
		return 0, fmt.Errorf("%q, and should be debug, info, warn, error, fatal or none", name)
	}
}
