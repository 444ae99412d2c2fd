// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

const journalName = "journal"

// config is the plugin's entry in the network's configuration.
type config struct {
	pluginconf.Config
	plugin string // its name
}

// parseConfig reads the configuration and fills in defaults.
func parseConfig(data []byte, paths pluginconf.Paths, plugin string) (*config, error) {
	parsed, err := paths.Parse(data)
	c := &config{parsed, plugin}
	switch {
	case errors.Is(err, pluginconf.ErrValue):
		return c, c.failure(types.ErrInvalidNetworkConfig, err)
	case err != nil:
		return c, c.failure(types.ErrDecodingFailure, err)
	}
	return c, nil
}

func (c *config) failure(code uint, err error) error {
	return &Error{
		Code: code, Step: "read configuration", Err: err,
		Remedy: "correct the entry of " + c.plugin + " in the node's CNI configuration, or let the node agent write it anew",
	}
}

// journal is where what ADD applied is kept.
func (c *config) journal() journal.Journal {
	return journal.Journal{Directory: filepath.Join(c.RunDir, journalName)}
}
