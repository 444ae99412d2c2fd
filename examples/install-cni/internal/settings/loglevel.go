// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"log/slog"
	"strings"
)

// levelNone is above everything this program logs.
const levelNone = slog.Level(100)

// logOutputLevel reads Istio's level option: a level for everything, or scope:level pairs, of which "default" (or "all") and the scopes
// of this daemon count here, and "cni-plugin" for the plugin. Other scopes don't exist here and are ignored.
func logOutputLevel() parser {
	return parser{"levels", func(s *Settings, value string) error {
		s.LogLevel, s.PluginLogLevel = slog.LevelInfo, "info"
		var scoped []func()
		for pair := range strings.SplitSeq(value, ",") {
			scope, name, found := strings.Cut(strings.TrimSpace(pair), ":")
			if !found {
				scope, name = "default", scope
			}
			level, err := parseLevel(name)
			if err != nil {
				return err
			}
			switch scope {
			case "default", "all":
				s.LogLevel, s.PluginLogLevel = level, name
			case "cni-agent", "install":
				scoped = append(scoped, func() { s.LogLevel = level })
			case "cni-plugin":
				scoped = append(scoped, func() { s.PluginLogLevel = name })
			}
		}
		for _, set := range scoped { // a scope's own level holds wherever it stands in the list
			set()
		}
		return nil
	}}
}

func parseLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error", "fatal":
		return slog.LevelError, nil
	case "none":
		return levelNone, nil
	}
	return 0, fmt.Errorf("%q is not a level; write debug, info, warn, error or none", name)
}
