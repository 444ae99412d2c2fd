// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

const journalName = "journal"

// config is the plugin's entry in the network's configuration.
type config struct{ pluginconf.Config }

// parseConfig reads the configuration and fills in defaults.
func parseConfig(data []byte) (config, error) {
	parsed, err := pluginconf.Parse(data)
	c := config{parsed}
	switch {
	case errors.Is(err, pluginconf.ErrValue):
		return c, c.failure(types.ErrInvalidNetworkConfig, err)
	case err != nil:
		return c, c.failure(types.ErrDecodingFailure, err)
	}
	return c, nil
}

func (c config) failure(code uint, err error) error {
	return &failure{
		code: code, step: "read configuration", cause: err,
		remedy: "correct the entry of " + pluginName + " in the node's CNI configuration, or let the node agent write it anew",
	}
}

// journal is where what ADD applied is kept.
func (c config) journal() journal.Journal {
	return journal.Journal{Directory: filepath.Join(c.RunDir, journalName)}
}

// policy is what the configuration says about pods.
func (c config) policy(m interception.Membership) interception.Policy {
	return interception.Policy{
		Membership: m, ExcludeNamespaces: c.ExcludeNamespaces, AgentNamespace: c.PodNamespace, AgentName: c.AgentName,
	}
}
