// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"

	"github.com/meshcni/meshcni/interception/podsource"
)

// results counts what plugins' commands came to. The plugin has logged it already, so it is here for those who look closely.
type results struct {
	log      *slog.Logger
	observer Observer
}

// Report takes results.
func (r results) Report(_ context.Context, all []podsource.Result) error {
	for _, result := range all {
		r.observer.Result(result)
		attributes := []any{
			"command", result.Command, "pod", result.Namespace + "/" + result.Name, "container", result.ContainerID,
			"captured", result.Captured, "reason", string(result.Reason), "source", result.Source, "stages", result.Stages,
		}
		if result.Error != nil {
			attributes = append(attributes, "error", result.Error.Message, "code", result.Error.Code)
		}
		r.log.Debug("a plugin's command came to its end", attributes...)
	}
	return nil
}
