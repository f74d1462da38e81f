# Fails when one of OBJECTS, compiled for an instruction set, defines a symbol that the linker may
# share with other objects: a weak one (W, V) or a unique global one (u).
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]+" shared "${symbols}")
  if(shared)
    message(FATAL_ERROR "${object} shares symbols with other objects: ${shared}")
  endif()
endforeach()
