// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// logOutputLevel reads Istio's level option: a level for everything, or scope:level pairs, of which "default" (or "all") and the scopes
// of this daemon count here, and "cni-plugin" for the plugin. Other scopes don't exist here and are ignored.
func logOutputLevel() parser {
	return parser{kind: "levels", shape: shape{Type: "string"}, apply: func(s *Settings, value string) error {
		s.LogLevel, s.PluginLogLevel = slog.LevelInfo, "info"
		var scoped []func()
		for pair := range strings.SplitSeq(value, ",") {
			scope, name, found := strings.Cut(strings.TrimSpace(pair), ":")
			if !found {
				scope, name = "default", scope
			}
			level, err := pluginconf.ParseLevel(name)
			if err != nil || name == "" {
				return fmt.Errorf("%q is not a level; write debug, info, warn, error or none", name)
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
