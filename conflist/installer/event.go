// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"strings"
)

// Event is something that was done or found, for the caller's log.
type Event struct {
	Weight Weight
	// Message is what happened, in words.
	Message string
	// Facts are the details, such as the file.
	Facts []Fact
}

// Fact is one detail of an [Event].
type Fact struct {
	// Name is a short word, such as "file" or "error".
	Name  string
	Value any
}

// Weight is the importance of an [Event]. Its values are those of package log/slog's levels.
type Weight int

// The weights.
const (
	Detail  Weight = -4 // for debugging, and for single writes of a fight with another program
	News    Weight = 0  // something was done
	Warning Weight = 4  // something is wrong, and prevents nothing yet
	Failure Weight = 8  // something cannot be done
)

// String is one line.
func (e Event) String() string {
	var out strings.Builder
	out.WriteString(e.Message)
	for _, fact := range e.Facts {
		fmt.Fprintf(&out, " %s=%v", fact.Name, fact.Value)
	}
	return out.String()
}

// emit passes an event to OnEvent. The facts are alternating names and values.
func (o Options) emit(weight Weight, message string, facts ...any) {
	e := Event{Weight: weight, Message: message}
	for i := 0; i+1 < len(facts); i += 2 {
		name, _ := facts[i].(string)
		e.Facts = append(e.Facts, Fact{name, facts[i+1]})
	}
	o.OnEvent(e)
}
