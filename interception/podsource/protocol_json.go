// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/meshcni/meshcni/internal/jsonwriter"
)

// MarshalJSON writes the entry as it goes over the agent's socket.
func (l LogEntry) MarshalJSON() ([]byte, error) {
	level, err := l.Level.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return jsonwriter.Of(func(o *jsonwriter.Object) {
		o.Time("time", l.Time)
		o.Raw("level", level)
		o.String("message", l.Message)
		if len(l.Attributes) == 0 {
			return
		}
		o.Object("attributes", func(o *jsonwriter.Object) {
			for _, key := range slices.Sorted(maps.Keys(l.Attributes)) {
				o.String(key, l.Attributes[key])
			}
		})
	}), nil
}

// MarshalJSON writes the result as it goes over the agent's socket.
func (r Result) MarshalJSON() ([]byte, error) {
	return jsonwriter.Of(func(o *jsonwriter.Object) {
		o.Time("time", r.Time)
		o.String("command", r.Command)
		o.NonEmpty("containerID", r.ContainerID)
		o.NonEmpty("namespace", r.Namespace)
		o.NonEmpty("name", r.Name)
		o.NonEmpty("uid", r.UID)
		o.Bool("captured", r.Captured)
		o.NonEmpty("reason", string(r.Reason))
		o.NonEmpty("detail", r.Detail)
		o.NonEmpty("source", r.Source)
		o.NonEmpty("plan", r.Plan)
		jsonwriter.NonEmptyList(o, "warnings", r.Warnings, jsonwriter.Text)
		jsonwriter.NonEmptyList(o, "stages", r.Stages, Stage.json)
		if r.Error != nil {
			o.Raw("error", r.Error.json())
		}
	}), nil
}

func (s Stage) json() []byte {
	return jsonwriter.Of(func(o *jsonwriter.Object) {
		o.String("name", s.Name)
		o.Float("milliseconds", s.Milliseconds)
	})
}

func (e ResultError) json() []byte {
	return jsonwriter.Of(func(o *jsonwriter.Object) {
		o.Uint("code", uint64(e.Code))
		o.String("message", e.Message)
		o.NonEmpty("details", e.Details)
	})
}

func (r logsRequest) MarshalJSON() ([]byte, error) {
	var o jsonwriter.Object
	err := list(&o, "entries", r.Entries)
	return o.Bytes(), err
}

func (r resultsRequest) MarshalJSON() ([]byte, error) {
	var o jsonwriter.Object
	err := list(&o, "results", r.Results)
	if err == nil && len(r.Entries) > 0 {
		err = list(&o, "entries", r.Entries)
	}
	return o.Bytes(), err
}

// list adds a list of what can write itself.
func list[T json.Marshaler](o *jsonwriter.Object, name string, values []T) error {
	elements := make([][]byte, len(values))
	for i, value := range values {
		var err error
		if elements[i], err = value.MarshalJSON(); err != nil {
			return err
		}
	}
	jsonwriter.List(o, name, elements, func(element []byte) []byte { return element })
	return nil
}
